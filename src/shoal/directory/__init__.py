"""Directories of public swarms: signed entries, lists of them, and which one a name means."""
