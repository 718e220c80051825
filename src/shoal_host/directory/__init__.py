"""Directories of public swarms: lists of signed entries, and which entry a name means."""
