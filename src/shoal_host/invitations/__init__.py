"""Signed entries of swarms and invitations to them."""
