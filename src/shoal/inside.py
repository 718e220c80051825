"""What a folder from somebody else names stays inside of it: links, and the files that cards and indexes list.

    check_inside(Path("data"))                          # its links
    check_inside(Path("data"), card_files(card))        # and the files that its card names
    check_fetched(Path("adapters"), "org/model")        # a model that it names

The user may name any place; a folder that was downloaded or unpacked may not: it would make this node read, and learn
from, what was never meant for others.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import yaml
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from shoal.errors import UserError
from shoal.untrusted import printable, read_regular

MOST_ENTRIES: Final = 100_000
"""Of a folder, that are looked at."""
MOST_BYTES: Final = 1 << 20
"""Of a card."""
MOST_NAMES: Final = 10_000
"""That a card may list."""
SNAPSHOTS: Final = ("models--", "datasets--")
"""How the folders of the Hub's cache begin, whose snapshots are links to the `blobs` beside them."""


def check_inside(folder: Path, names: Iterable[str] = ()) -> None:
    """Raises `UserError` if a link below `folder` leads out of it, or one of the file `names` that it lists."""
    root = folder.resolve()
    home = root.parent.parent
    allowed = [root] + [home / "blobs"] * (root.parent.name == "snapshots" and home.name.startswith(SNAPSHOTS))
    links = (entry for entry in islice(folder.rglob("*"), MOST_ENTRIES) if entry.is_symlink())
    for name, path in chain(((str(link.relative_to(folder)), link) for link in links), ((n, root / n) for n in names)):
        is_address = "://" in name or "::" in name
        if is_address or not any(path.resolve().is_relative_to(place) for place in allowed):
            raise UserError(
                f"{printable(str(folder))} names {printable(name, 100)}, which is outside of it and is not read; "
                "if you trust it, put the file itself into the folder"
            )


def check_fetched(folder: Path, name: str) -> None:
    """Raises `UserError` if the model that a file in `folder` names would have to come from the Hugging Face Hub:
    nothing is fetched because a folder says so. The user's word is to have it here, in the Hub's cache."""
    with suppress(HFValidationError):  # no name on the Hub: who loads it says so
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            shown = printable(name, 100)
            raise UserError(
                f"{printable(str(folder))} names the model {shown} on the Hugging Face Hub, and no folder makes this "
                f"machine fetch anything: if you trust both, fetch it (hf download {shown}) and try again"
            )


def card_files(card: Path) -> Iterator[str]:
    """The files and folders that the head of a data set's card (README.md) names. Raises `UserError`."""
    try:
        text = read_regular(card, MOST_BYTES).decode("utf-8", "replace")
        head = text.removeprefix("\ufeff").split("\n---", 1)[0] if text.lstrip("\ufeff").startswith("---") else ""
        if "&" in head and "*" in head and any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(head)):
            raise ValueError("it repeats parts of itself (YAML aliases)")
        said = yaml.safe_load(head.removeprefix("---"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{card} cannot be read: {printable(str(error), 200)}") from error
    yield from islice(_named(said, False), MOST_NAMES)


def _named(said: Any, is_files: bool) -> Iterator[str]:
    if isinstance(said, dict):
        for key, value in said.items():
            yield from _named(value, is_files or key in ("data_files", "data_dir"))
    elif isinstance(said, list):
        for value in said:
            yield from _named(value, is_files)
    elif is_files and isinstance(said, str):
        yield said
