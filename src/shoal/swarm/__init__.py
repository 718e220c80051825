"""Sharing rollouts."""
