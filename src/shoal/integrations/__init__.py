"""Shoal inside other people's programs."""
