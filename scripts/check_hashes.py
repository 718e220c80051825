"""Says whether what pip installed are the files of `hashes.txt`; exits with 1 if not.

    pip install --report installed.json -c constraints.txt -e .
    python scripts/check_hashes.py installed.json

pip checks no hashes where something is installed from a folder. Builds of another index (such as torch's "+cpu") are
named, since `hashes.txt` has none of them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

HASHES = Path(__file__).resolve().parent.parent / "hashes.txt"


def main(report: Path) -> int:
    known = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", HASHES.read_text()))
    wrong = checked = 0
    for entry in json.loads(report.read_text())["install"]:
        name = f"{entry['metadata']['name']} {entry['metadata']['version']}"
        archive = entry["download_info"].get("archive_info")
        if archive is None:  # this project's own folder
            continue
        digest = archive.get("hashes", {}).get("sha256")
        if digest in known:
            checked += 1
        elif digest is None:
            print(f"{name}: not checked, pip says no hash of it")
        elif "+" in entry["metadata"]["version"]:
            print(f"{name}: not checked, a build of another index")
        else:
            wrong += 1
            print(f"{name}: its file is not in hashes.txt; if the version was raised, run scripts/lock.py")
    print(f"hashes: {checked} packages are those of hashes.txt, {wrong} are not")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
