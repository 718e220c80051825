"""Writes `hashes.txt`: the versions of `constraints.txt`, on all systems, each with the SHA-256 of its files.

    python scripts/lock.py

To raise a version, change it in `constraints.txt` first. Versions and hashes come from the package index that uv asks.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = "uv==0.13.9"
EXTRAS = ("dev", "docs", "release", "data", "math", "lora")
"""Not vllm, which brings a torch of its own."""
HEADER = """\
# constraints.txt with the SHA-256 of every file of each package, for all systems; made by scripts/lock.py.
# uv checks what it installs against it: uv pip install -c hashes.txt -e .
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        tool(UV, Path(scratch))
        made = Path(scratch) / "hashes.txt"
        command = [str(Path(scratch) / "bin" / "uv"), "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
        command += ["--python-version", "3.11", "--no-header", "--no-annotate", "--no-emit-index-url"]
        command += [option for extra in EXTRAS for option in ("--extra", extra)]
        command += ["-c", "constraints.txt", "-o", str(made), "pyproject.toml"]
        subprocess.run(command, cwd=ROOT, check=True)
        (ROOT / "hashes.txt").write_text(HEADER + made.read_text())
    return 0


def tool(requirement: str, folder: Path) -> None:
    """Installs a tool into an environment of its own at `folder`."""
    venv.create(folder, with_pip=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", requirement], check=True)


if __name__ == "__main__":
    sys.exit(main())
