"""A Modelfile, by which Ollama takes a GGUF file in: `ollama create NAME -f model.Modelfile`.

It has no TEMPLATE: Ollama goes by the chat template in the file. It is written by Ollama's documentation
(docs/modelfile.md), and has not been run with Ollama.
"""

from __future__ import annotations

from typing import Any, Final

from shoal.policy.loading import LanguageModel

MOST_STOPS: Final = 8
NOTE: Final = "# Written by shoal from Ollama's documentation; not run with Ollama.\n"


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
