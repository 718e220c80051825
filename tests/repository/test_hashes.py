"""What a user installs can be checked, file by file."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_tested_version_has_hashes() -> None:
    pins = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    entries = re.split(r"\n(?=\w)", (ROOT / "hashes.txt").read_text())
    locked = {found[1]: (found[2], entry) for entry in entries if (found := re.match(r"([\w.-]+)==(\S+)", entry))}
    assert len(pins) > 100
    for name, version in pins:
        known, entry = locked[re.sub(r"[-_.]+", "-", name).lower()]
        assert known == version, name
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), name


def test_no_index_is_named() -> None:
    assert "://" not in (ROOT / "hashes.txt").read_text()
    assert "index-url" not in (ROOT / "hashes.txt").read_text()
