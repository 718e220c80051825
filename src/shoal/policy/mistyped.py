"""Names of models that lead nowhere, found before torch and transformers are imported: a command says so at once.

check_exists("runs/oen")     # UserError: ... did you mean 'runs/one'?
"""

from __future__ import annotations

import difflib
import os
from itertools import islice
from pathlib import Path

from shoal.config.policy import EMBEDDED, is_endpoint
from shoal.errors import UserError
from shoal.policy.named import NAMED, check_spelling

PATIENCE = 10.0
"""Seconds for the Hub to answer whether it has a model."""
SIBLINGS = 1000
"""Entries of a folder that are looked at."""


def check_exists(name: str) -> None:
    """Raises `UserError` if there is no model `name`: no short name, endpoint, folder or file here, and nothing of this
    name in the cache or on the Hub. What cannot be known so soon, loading will say."""
    check_spelling(name)
    path = Path(name).expanduser()
    if not name or name in (*EMBEDDED, *NAMED) or is_endpoint(name) or path.exists():
        return
    if name.endswith(".gguf"):
        raise UserError(f"there is no file '{name}'{_hint(path)}")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise UserError(f"'{name}' is no model: give a Hugging Face name, a model folder or a .gguf file{_hint(path)}")
    _check_hub(name)


def _hint(path: Path) -> str:
    """The nearest name that there is, of the first part of `path` that there is not."""
    for at in range(len(path.parts)):
        part = Path(*path.parts[: at + 1])
        if not part.exists():
            try:
                names = [entry.name for entry in islice(os.scandir(part.parent), SIBLINGS)]
            except OSError:
                return ""
            near = difflib.get_close_matches(part.name, names, n=1, cutoff=0.6)
            return f"; did you mean '{part.with_name(near[0])}'?" if near and near[0].isprintable() else ""
    return ""


def _check_hub(name: str) -> None:
    import httpx2
    import huggingface_hub as hub
    from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        if any(isinstance(hub.try_to_load_from_cache(name, f), str) for f in ("config.json", "adapter_config.json")):
            return
        hub.get_hf_file_metadata(hub.hf_hub_url(name, "config.json"), timeout=PATIENCE)
    except HFValidationError:
        why = "no folder or file of this name here, and the Hugging Face Hub has no such names"
    except RepositoryNotFoundError:
        why = "no folder of this name here, and none on the Hugging Face Hub that you may read; check the name"
    except OfflineModeIsEnabled:
        why = "no folder of this name here, and HF_HUB_OFFLINE is set"
    except httpx2.TransportError:
        why = "no folder of this name here, and the Hugging Face Hub does not answer; check the name and the network"
    except Exception:  # whatever else, such as a model that asks for consent
        return
    else:
        return
    raise UserError(f"model '{name}' cannot be loaded: {why}{_hint(Path(name))}")
