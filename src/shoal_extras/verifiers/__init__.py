"""Tasksets of Prime Intellect's verifiers as tasks. See docs/guides/verifiers.md."""
