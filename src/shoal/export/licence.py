"""The licence of the model from which a run began, and its name on the Hugging Face Hub.

origin_of("smollm2").licence        # "apache-2.0"
origin_of("my-model/").licence      # what the README.md in that folder says; empty if nothing does
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import httpx2
import huggingface_hub
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

from shoal.config.policy import EMBEDDED, is_endpoint
from shoal.policy.fetch import is_intact
from shoal.policy.named import NAMED, NamedModel
from shoal.untrusted import read_regular

LICENCES: Final = {"smollm2": "apache-2.0", "gemma3-270m": "gemma"}
"""Of the models with short names, as the Hub calls them."""
MOST_BYTES: Final = 2**18
"""Of a README.md that is read."""
PATIENCE: Final = 10.0
"""Seconds that the Hub has to say a model's licence."""


@dataclass(frozen=True)
class Origin:
    """What is known of a model from which others begin."""

    hub: str = ""
    """Its name on the Hub."""
    licence: str = ""
    """As the Hub calls it; empty: unknown."""
    title: str = ""
    """What it is, where it is not what the Hub has under that name: a quantised copy."""


def origin_of(model: str) -> Origin:
    """What is known of `model`: a short name, a file or folder, or a name on the Hub, which is asked. Never raises."""
    if model in EMBEDDED:
        return Origin(licence=_in_card(Path(str(files("shoal") / EMBEDDED[model]))))
    if named := _named(model):
        return Origin(named.hub, LICENCES.get(named.name, ""), "" if model == named.hub else named.title)
    path = Path(model).expanduser()
    if path.exists() or is_endpoint(model):
        return Origin(licence=_in_card(path))
    try:
        data: Any = HfApi().model_info(model, timeout=PATIENCE).card_data
    except (HFValidationError, RepositoryNotFoundError):  # a folder that is gone, or a name that the Hub does not have
        return Origin()
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx2.HTTPError, OSError, ValueError):
        return Origin(model)
    return Origin(model, _licence(data.license if data else None))


def _named(model: str) -> NamedModel | None:
    """The model of this short name, or of this file."""
    path = Path(model).expanduser()
    for one in NAMED.values():
        if model == one.name or model == one.hub or (path.name == one.file and is_intact(one, path)):
            return one
    return None


def _in_card(folder: Path) -> str:
    """The licence that the README.md in a model's folder says."""
    try:
        text = read_regular(folder / "README.md", MOST_BYTES).decode("utf-8")
        data: Any = huggingface_hub.ModelCard(text, ignore_metadata_errors=True).data
    except Exception:  # a stranger's file: whatever a parser of YAML raises
        return ""
    return _licence(data.license)


def _licence(value: object) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[a-z0-9][a-z0-9.\-]{0,39}", value) else ""
