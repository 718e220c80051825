"""`shoal export --to gguf:FILE`: a GGUF file, its card, and a Modelfile, by which Ollama takes it in (`ollama create
NAME -f model.Modelfile`).

A Modelfile has no TEMPLATE: Ollama goes by the chat template in the file. It is written by Ollama's documentation
(docs/modelfile.md), and has not been run with Ollama.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from shoal.errors import UserError
from shoal.export.exported import Exported
from shoal.export.writing import check_files, new_files
from shoal.policy.loading import LanguageModel
from shoal_extras.gguf.file import write_gguf
from shoal_extras.gguf.tensors import KINDS, Kind

DEFAULT_KIND: Final = Kind.F16
"""Of a GGUF file whose name says none."""
MOST_STOPS: Final = 8
NOTE: Final = "# Written by shoal from Ollama's documentation; not run with Ollama.\n"


@dataclass(frozen=True)
class GGUFTarget:
    """A GGUF file, and what goes beside it."""

    out: Path
    kind: Kind

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises `UserError` if `text` is no name of a GGUF file, or files are there already."""
        out = Path(text)
        if out.suffix != ".gguf" or not out.name.isprintable():
            raise UserError(f"'{out}' is no name of a GGUF file: write gguf:NAME.gguf, or gguf:NAME.Q8_0.gguf")
        said = re.fullmatch(r".*[.\-_]((?:I?Q\d|B?F\d|TQ\d)\w*)", out.stem, re.IGNORECASE)
        if said and said[1].upper() not in KINDS:
            raise UserError(f"GGUF files are not written as {said[1]}: choose from {', '.join(KINDS)}")
        target = cls(out, KINDS[said[1].upper()] if said else DEFAULT_KIND)
        check_files(target.files)
        return target

    @property
    def files(self) -> list[Path]:
        """The file, its card and its Modelfile."""
        return [self.out, self.out.with_suffix(".md"), self.out.with_suffix(".Modelfile")]

    def write(self, model: Exported) -> list[str]:
        """Adapters are added to the weights of their base."""
        lm = model.load()
        model.say(f"writing {self.out} ({self.kind.name})")
        with new_files(self.files) as scratch:
            file, card, modelfile = (scratch / path.name for path in self.files)
            card.write_text(model.card("gguf"), encoding="utf-8")
            modelfile.write_text(modelfile_of(lm, self.out.name, model.temperature), encoding="utf-8")
            write_gguf(lm, file, self.kind, model.name)
        return [str(path) for path in self.files]


def modelfile_of(lm: LanguageModel, file: str, temperature: float | None) -> str:
    """The Modelfile for `file`, a GGUF file beside it. `temperature`: with which it was trained and measured."""
    lines = [f"FROM ./{file}"]
    if temperature is not None:
        lines.append(f"PARAMETER temperature {temperature:g}")
    tokenizer: Any = lm.tokenizer
    for token in tokenizer.convert_ids_to_tokens(sorted(lm.stop_ids & set(tokenizer.all_special_ids)))[:MOST_STOPS]:
        if token.isprintable() and '"' not in token:
            lines.append(f'PARAMETER stop "{token}"')
    return NOTE + "\n".join(lines) + "\n"
