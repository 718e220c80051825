"""A model on its way out: its weights or adapters, and its card."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch

from shoal.errors import UserError
from shoal.policy.adapters import ADAPTER_CONFIG, MOST_BYTES, base_name, is_adapters
from shoal.policy.loading import LanguageModel, load
from shoal.runs.source import Source
from shoal.untrusted import parse_json, read_regular
from shoal_extras.export.card import Library, Origin, card_of, origin_of
from shoal_extras.export.story import Story, public_name, story_of

CARD: Final = "README.md"
ADAPTER_FILES: Final = (ADAPTER_CONFIG, "adapter_model.safetensors")


@dataclass(frozen=True)
class Exported:
    """What a target writes."""

    source: Source
    story: Story | None
    """Of the run that made it."""
    origin: Origin
    as_adapters: bool
    """Whether LoRA adapters stay adapters."""
    say: Callable[[str], None]
    plain: bool = False
    """Whether the way of asking stays behind."""

    @classmethod
    def of(cls, source: Source, merge: bool, say: Callable[[str], None], plain: bool = False) -> Self:
        """Raises `UserError` if there is nothing to `merge`."""
        adapters = is_adapters(Path(source.model))
        if merge and not adapters:
            raise UserError(f"'{source.model}' holds no LoRA adapters to merge: leave out --merge")
        say("reading the run" if source.run else "reading the model")
        story = story_of(source)
        base = story.base_source if story else base_name(Path(source.model)) if adapters else source.model
        return cls(source, story, origin_of(base), adapters and not merge, say, plain)

    @property
    def name(self) -> str:
        """What the model is called in its card."""
        if self.story is None:
            return public_name(self.source.model).removesuffix(".gguf")
        return f"{self.story.base.rpartition('/')[2].removesuffix('.gguf')}-shoal"

    def card(self, library: Library, file: str = "") -> str:
        """`file`: the name of a GGUF file."""
        return card_of(self.story, self.origin, self.name, library, file)

    def load(self) -> LanguageModel:
        """The whole model; adapters are added to the weights of their base."""
        self.say(f"loading {self.source.model}")
        model = self.source.model
        lm = load(str(Path(model).absolute()) if self.source.run else model, torch.device("cpu"))
        if self.story and self.story.config:  # the checkpoint itself says how it is asked
            answers: Any = lm.model.generation_config
            answers.max_new_tokens = int(self.story.config.policy.max_completion_length)
        return lm

    def fill(self, folder: Path, base: str = "") -> None:
        """Writes the model and its card. `base`: what the adapters' own settings are to name, if another than now."""
        here = Path(self.source.model)
        lm = self.load()
        if self.as_adapters:
            for file in ADAPTER_FILES:
                shutil.copyfile(here / file, folder / file)
            if base:
                _rename_base(folder / ADAPTER_CONFIG, base)
            lm.save_asking(folder, self.plain)
        else:
            self.say("writing the model")
            lm.save(folder, self.plain)
        (folder / CARD).write_text(self.card("peft" if self.as_adapters else "transformers"), encoding="utf-8")


def _rename_base(file: Path, base: str) -> None:
    """Lets adapters belong to a model by its name on the Hub, wherever it lay here."""
    settings = parse_json(read_regular(file, MOST_BYTES)) | {"base_model_name_or_path": base}
    file.write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")
