"""Counts the lines of Python in src by package and compares them with their budget: exit code 1 above it.

python scripts/lines.py
"""

from __future__ import annotations

import sys
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
CORE, ALL = 25_000, 43_000
"""The most lines of `shoal`, and of all packages."""


def main() -> int:
    lines = {
        package.name: sum(len(path.read_bytes().splitlines()) for path in package.rglob("*.py"))
        for package in sorted(SRC.glob("shoal*"))
        if (package / "__init__.py").is_file()
    }
    for name, count in lines.items():
        print(f"{name:14}{count:7,}" + (f"  of {CORE:,}" if name == "shoal" else ""))
    print(f"{'all':14}{sum(lines.values()):7,}  of {ALL:,}")
    return int(lines["shoal"] > CORE or sum(lines.values()) > ALL)


if __name__ == "__main__":
    sys.exit(main())
