"""Says whether any package in `hashes.txt` has a known vulnerability; exits with 1 if one has.

    python scripts/audit.py
    python scripts/audit.py --ignore-vuln PYSEC-2026-1     # what pip-audit takes

It asks the package index for advisories. Where there is no network, or the index has no advisories, it says in one line
that the audit was skipped, and exits with 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lock import ROOT, tool

PIP_AUDIT = "pip-audit==2.10.1"


def main(options: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            tool(PIP_AUDIT, Path(scratch))
        except subprocess.CalledProcessError:
            return skipped(f"{PIP_AUDIT} cannot be installed here")
        command = [str(Path(scratch) / "bin" / "pip-audit"), "-r", str(ROOT / "hashes.txt"), "--require-hashes"]
        command += ["--disable-pip", "--format", "json", "--progress-spinner", "off", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return skipped((done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:200])
    return report(packages)


def report(packages: Sequence[dict[str, Any]]) -> int:
    """Prints what pip-audit found. Returns 1 if it is anything."""
    audited = [package for package in packages if "vulns" in package]
    if not audited:  # pip-audit itself would say that it found nothing
        return skipped("the package index that is asked here has no advisories")
    for package in audited:
        for found in package["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version"
            print(f"{package['name']} {package['version']}: {found['id']}, mended in {fixed}")
    print(f"audit of known vulnerabilities: {len(audited)} of {len(packages)} packages looked up")
    return int(any(package["vulns"] for package in audited))


def skipped(why: str) -> int:
    print(f"audit of known vulnerabilities: skipped ({why})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
