"""What `shoal watch`, `shoal human` and `shoal judge` share: where a page listens, its files, and who may see it."""
