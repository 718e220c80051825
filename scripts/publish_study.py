"""Puts a finished study's report into docs/studies.

    python scripts/publish_study.py lab/default default

`shoal lab run studies/NAME.toml` makes the numbers behind pictures again.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs" / "studies"


def published(text: str, command: str, name: str) -> str:
    """The report with the command that repeats it, without links to numbers."""
    flags = command.partition("study.toml")[2]
    text = text.replace(command, f"shoal lab run studies/{name}.toml{flags}")
    return re.sub(r" \[Numbers\]\([^)]+\)", "", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="its folder")
    parser.add_argument("name", help="of studies/NAME.toml")
    args = parser.parse_args()
    made, place = args.study / "report", DOCS / args.name
    command = json.loads((made / "report.json").read_text())["command"]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "report.md").write_text(published((made / "report.md").read_text(), command, args.name))
    figures = json.loads(published((made / "report.json").read_text(), command, args.name))
    (place / "report.json").write_text(json.dumps(figures, ensure_ascii=False, separators=(",", ":")) + "\n")
    for picture in made.glob("*.png"):
        shutil.copy(picture, place)
    print(f"{place}; check it: pytest -m '' tests/lab/unit/test_lab_published.py")


if __name__ == "__main__":
    main()
