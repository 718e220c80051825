"""Answers that are drawings: SVG that a stranger wrote, drawn and compared with what was asked for."""
