"""Errors of other libraries, in one line."""

from __future__ import annotations


def first_line(error: Exception) -> str:
    """What kind of error it is, and the beginning of what it says."""
    if "trust_remote_code" in str(error):
        return "it needs code of its own (auto_map in its files), which shoal never runs"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
