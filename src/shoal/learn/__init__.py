"""Advantages, losses and the update."""
