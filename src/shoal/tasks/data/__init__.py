"""Data sets as tasks: files, folders and names on the Hub. See docs/guides/data.md."""
