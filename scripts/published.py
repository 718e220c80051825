"""What a release shows of the README and the changelog elsewhere than in the repository.

python scripts/published.py readme      # README.md with whole addresses, as PyPI needs them: rewrites the file
python scripts/published.py notes       # the newest version's "What is new for you", for the release on GitHub
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES, FILES = "https://github.com/shoal-rl/shoal/blob/main/", "https://raw.githubusercontent.com/shoal-rl/shoal/main/"
LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")


def readme(text: str) -> str:
    """Links and pictures with whole addresses; pictures as files, since PyPI shows no pages."""
    return LINK.sub(lambda found: f"]({FILES if found[1].endswith(('.svg', '.png')) else PAGES}{found[1]})", text)


def notes(changelog: str) -> str:
    """The text below the newest "What is new for you". Raises `ValueError` where the newest version has none."""
    newest = re.split(r"^## .*\n", changelog, flags=re.MULTILINE)[1]
    found = re.search(r"^### What is new for you\n+(.*?)(?=^### |\Z)", newest, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError('the newest version in CHANGELOG.md has no "### What is new for you"')
    return LINK.sub(rf"]({PAGES}\1)", found[1].strip()) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["readme"]:
        path = ROOT / "README.md"
        path.write_text(readme(path.read_text()))
    elif sys.argv[1:] == ["notes"]:
        print(notes((ROOT / "CHANGELOG.md").read_text()), end="")
    else:
        sys.exit(__doc__)
