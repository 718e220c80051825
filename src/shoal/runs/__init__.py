"""A run: its nodes are built, its rounds run, and what comes of them written into its folder."""
