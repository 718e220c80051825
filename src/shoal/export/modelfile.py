"""A Modelfile, by which Ollama takes a GGUF file in: `ollama create NAME -f model.Modelfile`.

It is written by Ollama's documentation (docs/modelfile.md) and has not been run: no Ollama was at hand. TEMPLATE is
there where the model's chat template is no more than texts around the messages; else Ollama uses what is in the file.
"""

from __future__ import annotations

from typing import Any, Final

from shoal.errors import UserError
from shoal.export.gguf_vocabulary import begins
from shoal.policy.loading import LanguageModel
from shoal.policy.template import ChatFrame, ChatTemplate, Slot, chat_template

MOST_STOPS: Final = 8
NOTE: Final = "# Written by shoal from Ollama's documentation; not run with Ollama.\n"


def modelfile_of(lm: LanguageModel, file: str, temperature: float | None) -> str:
    """The Modelfile for `file`, a GGUF file beside it. `temperature`: with which it was trained and measured."""
    lines = [f"FROM ./{file}"]
    if (template := go_template(lm)) is not None:
        lines.append(f'TEMPLATE """{template}"""')
    if temperature is not None:
        lines.append(f"PARAMETER temperature {temperature:g}")
    tokenizer: Any = lm.tokenizer
    for token in tokenizer.convert_ids_to_tokens(sorted(lm.stop_ids & set(tokenizer.all_special_ids)))[:MOST_STOPS]:
        if token.isprintable() and '"' not in token:
            lines.append(f'PARAMETER stop "{token}"')
    return NOTE + "\n".join(lines) + "\n"


def go_template(lm: LanguageModel) -> str | None:
    """The chat template in Ollama's language; None if it does more than to put texts around messages."""
    if lm.answers_in_lines and not lm.tokenizer.chat_template:
        return "{{ range .Messages }}{{ .Content }}\n{{ end }}"
    template = chat_template(lm.tokenizer, lm.name)
    if template is None:
        return "{{ .Prompt }}"
    first = _pieces(template, ("user",))
    chat = _pieces(template, ("user", "assistant", "user"))
    system = _pieces(template, ("system", "user"))
    if first is None or chat is None or chat[1] != chat[3] or chat[1] != first[1] or chat[0] != first[0]:
        return None
    before, asks, between = first[0], first[1], chat[2]
    if begins(lm.tokenizer):  # llama.cpp puts it there itself
        before = before.removeprefix(str(lm.tokenizer.bos_token))
    # what stands before each of a user's messages; the rest stands before the chat, or ends an answer
    user = _common_end([before, between, *([system[1]] if system else [])])
    default, end = before.removesuffix(user), between.removesuffix(user)
    head = default
    if system and system[2] == asks:
        opens = system[0].removeprefix(str(lm.tokenizer.bos_token)) if begins(lm.tokenizer) else system[0]
        named = f"{opens}{{{{ .System }}}}{system[1].removesuffix(user)}"
        head = f"{{{{ if .System }}}}{named}{{{{ else }}}}{default}{{{{ end }}}}"
    texts = [default, user, asks, end, *(system or [])]
    if any("{{" in text or "}}" in text or '"""' in text for text in texts):
        return None
    return (
        f'{head}{{{{ range .Messages }}}}{{{{ if eq .Role "user" }}}}{user}{{{{ .Content }}}}{asks}'
        f'{{{{ else if eq .Role "assistant" }}}}{{{{ .Content }}}}{end}{{{{ end }}}}{{{{ end }}}}'
    )


def _pieces(template: ChatTemplate, roles: tuple[str, ...]) -> list[str] | None:
    """The texts around the messages, one more than there are messages; None if they do not come once each, in order."""
    try:
        frame: ChatFrame = template.frame(roles)
    except UserError:
        return None
    slots = [piece.number for piece in frame.pieces if isinstance(piece, Slot)]
    if slots != list(range(len(roles))):
        return None
    texts, last = [""], 0
    for piece in frame.pieces:
        if isinstance(piece, Slot):
            texts.append("")
            last += 1
        else:
            texts[last] += piece
    return texts


def _common_end(texts: list[str]) -> str:
    count = 0
    for characters in zip(*(reversed(text) for text in texts), strict=False):
        if len(set(characters)) > 1:
            break
        count += 1
    return texts[0][len(texts[0]) - count :]
