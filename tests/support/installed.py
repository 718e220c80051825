"""Packages that are installed as far as Python can tell."""

from pathlib import Path


def installed(folder: Path, name: str, group: str, entries: dict[str, str]) -> None:
    """What pip writes about a package with these entry points."""
    about = folder / f"{name}-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(
        "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())])
    )
