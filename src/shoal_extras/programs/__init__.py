"""Tasks whose answers are programs. See docs/guides/code.md."""
