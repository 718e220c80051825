"""Swarms in a place: nodes that share through files, in a folder or at any URL that fsspec can write to."""
