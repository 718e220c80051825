"""A Modelfile for Ollama, which does not read the Jinja of a GGUF file that it does not know.

    text = modelfile(lm, "model.gguf")
    Path("model.Modelfile").write_text(text)        # ollama create my-model -f model.Modelfile

Its template in Go's language is what the model's own chat template writes around one question, as in training.
"""

from typing import Any, Final

from shoal.policy.loading import LanguageModel
from shoal.policy.plain import PlainText
from shoal.policy.template import Slot, chat_template

LONGEST_STOP: Final = 100
"""Characters."""


def modelfile(lm: LanguageModel, file: str, plain: bool = False) -> str:
    """The Modelfile of the GGUF file called `file` beside it. `plain`: without the way of asking."""
    tokenizer: Any = lm.tokenizer
    settings: Any = lm.model.generation_config
    stops = dict.fromkeys(tokenizer.decode([id]) for id in sorted(lm.stop_ids))
    lines = [f"FROM ./{file}", f"TEMPLATE {quoted(_template(lm, plain))}"]
    lines += [f"PARAMETER stop {quoted(text)}" for text in stops if 0 < len(text) <= LONGEST_STOP]
    lines += [f"PARAMETER num_predict {settings.max_new_tokens}"] if settings.max_new_tokens else []
    return "\n".join([*lines, "PARAMETER temperature 0", "PARAMETER repeat_penalty 1", ""])


def quoted(text: str) -> str:
    """A text as Modelfiles have it. They have no escapes: three quotes, and one at the end, become apostrophes."""
    text = text.replace('"""', "'''")
    return f'"""{text[:-1]}\'"""' if text.endswith('"') else f'"""{text}"""'


def _template(lm: LanguageModel, plain: bool) -> str:
    """A template in Go's language for one question. White space between actions would be written, so there is none."""
    tokenizer: Any = lm.tokenizer
    inert = PlainText(tokenizer)
    asking = [] if plain else [(message.role, inert.defused(message.content)) for message in lm.asking]
    texts = [text for _, text in asking]
    frame = chat_template(tokenizer, lm.name).frame((*(role for role, _ in asking), "user"))
    bos = tokenizer.bos_token_id
    # what the tokenizer puts before a text by itself, which no template may write again
    begin = str(tokenizer.bos_token) if bos is not None and tokenizer("x").input_ids[0] == bos else ""
    written = [
        "{{ .Prompt }}"
        if isinstance(piece, Slot) and piece.number == len(asking)
        else f"{{{{ {_go(piece.text(texts) if isinstance(piece, Slot) else piece)} }}}}"
        for piece in frame.pieces
        if piece != ""
    ]
    return "".join(written).replace(_go(begin)[:-1], '"', 1) if begin else "".join(written)


def _go(text: str) -> str:
    """A text as a string of Go's. A Modelfile drops what is not printable."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    shown = (c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped)
    return '"' + "".join(shown) + '"'
