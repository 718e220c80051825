"""Takes a model away: to a folder, a GGUF file or the Hub.

target = target_of("gguf:model.Q8_0.gguf", public=False)
export(source_of_export("runs/one"), target, merge=False, say=print)
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from shoal.errors import UserError, in_brief
from shoal.export.card import card_of
from shoal.export.hub import HubTarget
from shoal.export.licence import Origin, origin_of
from shoal.export.sources import Source
from shoal.export.story import Story, public_name, story_of
from shoal.export.writing import check_files, check_folder, new_files, new_folder, scratch_beside
from shoal.policy.adapters import ADAPTER_CONFIG, MOST_BYTES, base_name, is_adapters
from shoal.policy.loading import LanguageModel, load, source_of
from shoal.policy.vision_families import FAMILIES
from shoal.untrusted import parse_json, read_regular
from shoal_extras.gguf.file import write_gguf
from shoal_extras.gguf.modelfile import modelfile_of
from shoal_extras.gguf.tensors import KINDS, Kind

CARD: Final = "README.md"
ADAPTER_FILES: Final = (ADAPTER_CONFIG, "adapter_model.safetensors")
DEFAULT_KIND: Final = Kind.F16
"""Of a GGUF file whose name says none."""


@dataclass(frozen=True)
class FolderTarget:
    """A new or empty folder."""

    out: Path


@dataclass(frozen=True)
class GGUFTarget:
    """A GGUF file, and what goes beside it."""

    out: Path
    kind: Kind

    @property
    def files(self) -> list[Path]:
        """The file, its card and its Modelfile."""
        return [self.out, self.out.with_suffix(".md"), self.out.with_suffix(".Modelfile")]


Target = FolderTarget | GGUFTarget | HubTarget


def target_of(text: str, public: bool) -> Target:
    """Where `text` (hub:NAME, gguf:FILE, NAME.gguf or a folder) says. Raises `UserError` if nothing can be written
    there."""
    scheme, _, rest = text.partition(":")
    if public and scheme != "hub":
        raise UserError("--public is for --to hub:NAME")
    match scheme:
        case "hub" if rest:
            return HubTarget.find(rest, public)
        case "gguf" if rest:
            return _gguf_target(Path(rest))
        case _ if text.endswith(".gguf") and ":" not in text:
            return _gguf_target(Path(text))
        case _ if ":" in text and re.fullmatch(r"[A-Za-z]{2,}", scheme):
            raise UserError(f"'{text}' is nowhere to export to: write hub:NAME, gguf:FILE.gguf or a folder")
    check_folder(Path(text))
    return FolderTarget(Path(text))


def _gguf_target(out: Path) -> GGUFTarget:
    if out.suffix != ".gguf" or not out.name.isprintable():
        raise UserError(f"'{out}' is no name of a GGUF file: write gguf:NAME.gguf, or gguf:NAME.Q8_0.gguf")
    said = re.fullmatch(r".*[.\-_]((?:I?Q\d|B?F\d|TQ\d)\w*)", out.stem, re.IGNORECASE)
    if said and said[1].upper() not in KINDS:
        raise UserError(f"GGUF files are not written as {said[1]}: choose from {', '.join(KINDS)}")
    target = GGUFTarget(out, KINDS[said[1].upper()] if said else DEFAULT_KIND)
    check_files(target.files)
    return target


def export(source: Source, target: Target, merge: bool, say: Callable[[str], None]) -> list[str]:
    """Writes the model to `target`, with a card. LoRA adapters stay as they are unless `merge`, but for GGUF.

    Returns what was written. Raises `UserError`; a failed upload may leave an empty repository on the Hub."""
    adapters = is_adapters(Path(source.model))
    if merge and not adapters:
        raise UserError(f"'{source.model}' holds no LoRA adapters to merge: leave out --merge")
    say("reading the run" if source.run else "reading the model")
    story = story_of(source)
    base = story.base_source if story else base_name(Path(source.model)) if adapters else source.model
    origin = origin_of(base)
    name = _name(source, story)
    as_adapters = adapters and not merge
    match target:
        case FolderTarget(out):
            with new_folder(out) as scratch:
                _fill(scratch, source, story, origin, name, as_adapters, "", say)
            return [str(out)]
        case GGUFTarget(out, kind):
            lm = _loaded(source, say)
            say(f"writing {out} ({kind.name})")
            with new_files(target.files) as scratch:
                file, card, modelfile = (scratch / path.name for path in target.files)
                card.write_text(card_of(story, origin, name, "gguf"), encoding="utf-8")
                temperature = story.config.policy.temperature if story else None
                modelfile.write_text(modelfile_of(lm, out.name, temperature), encoding="utf-8")
                write_gguf(lm, file, kind, name)
            return [str(path) for path in target.files]
        case HubTarget():
            if as_adapters and not origin.hub:
                raise UserError("the adapters belong to a model that is not on the Hub: add --merge")
            room = Path(tempfile.gettempdir()) / target.name.replace("/", "-")
            with scratch_beside(room) as scratch:
                _fill(scratch, source, story, origin, name, as_adapters, origin.hub, say)
                say(f"uploading to {target.address}")
                target.upload(scratch)
            return [target.address]


def _fill(
    folder: Path,
    source: Source,
    story: Story | None,
    origin: Origin,
    name: str,
    as_adapters: bool,
    base: str,
    say: Callable[[str], None],
) -> None:
    """Writes the model and its card. `base`: what the adapters' own settings are to name, if another than now."""
    library: Literal["peft", "transformers"] = "peft" if as_adapters else "transformers"
    if as_adapters:
        _check_adapters(Path(source.model))
        for file in ADAPTER_FILES:
            shutil.copyfile(Path(source.model) / file, folder / file)
        if base:
            _rename_base(folder / ADAPTER_CONFIG, base)
        sees = _sees(base_name(Path(source.model)))
    else:
        lm = _loaded(source, say)
        say("writing the model")
        lm.save(folder)
        sees = lm.vision is not None
    (folder / CARD).write_text(card_of(story, origin, name, library, sees), encoding="utf-8")


def _sees(model: str) -> bool:
    """Whether a model is shown pictures, by its configuration."""
    try:
        name, options = source_of(model)
        return AutoConfig.from_pretrained(name, **options).model_type in FAMILIES
    except (UserError, OSError, ValueError):  # it is gone, or of a kind that is not known here
        return False


def _check_adapters(folder: Path) -> None:
    """Raises `UserError` for adapters that nobody could load."""
    weights = folder / ADAPTER_FILES[1]
    try:
        with safe_open(weights, "pt"):
            pass
    except (OSError, SafetensorError) as error:
        raise UserError(f"the adapters in '{folder}' cannot be read: {in_brief(error)}") from error


def _loaded(source: Source, say: Callable[[str], None]) -> LanguageModel:
    say(f"loading {source.model}")
    return load(str(Path(source.model).absolute()) if source.run else source.model, torch.device("cpu"))


def _name(source: Source, story: Story | None) -> str:
    """What the model is called in its card."""
    if story is None:
        return public_name(source.model).removesuffix(".gguf")
    return f"{story.base.rpartition('/')[2].removesuffix('.gguf')}-shoal"


def _rename_base(file: Path, base: str) -> None:
    """Lets adapters belong to a model by its name on the Hub, wherever it lay here."""
    try:
        settings = parse_json(read_regular(file, MOST_BYTES))
        settings["base_model_name_or_path"] = base
    except (ValueError, TypeError) as error:
        raise UserError(f"{file.name} of the adapters is damaged") from error
    file.write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")
