"""A Modelfile for Ollama, which does not read the Jinja of a GGUF file that it does not know.

    text = modelfile(lm, "model.gguf")
    Path("model.Modelfile").write_text(text)        # ollama create my-model -f model.Modelfile

The template in Go's language is not kept for each family: it is made of what the model's own chat template writes
between two messages, whatever the family. A template that writes something else elsewhere in a chat, such as the system
text before the last question, gets one question alone, with all that stands around it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from shoal.policy.loading import LanguageModel
from shoal.policy.plain import PlainText
from shoal.policy.template import ChatFrame, ChatTemplate, Slot, TemplateRefusal, chat_template

CHATS: Final = (("system", "user", "assistant", "user"), ("user", "assistant", "user"), ("system", "user"), ("user",))
"""Of these all that may stand between two messages is learned."""
LONG: Final = ("system", *("user", "assistant") * 3, "user")
"""A chat that has to come out right."""
LONGEST_STOP: Final = 100
"""Characters."""


def modelfile(lm: LanguageModel, file: str, plain: bool = False) -> str:
    """The Modelfile of the GGUF file called `file` beside it. `plain`: without the way of asking."""
    template, tokenizer = chat_template(lm.tokenizer, lm.name), lm.tokenizer
    inert = PlainText(tokenizer)
    asking = [] if plain else [(message.role, inert.defused(message.content)) for message in lm.asking]
    joints = _joints(template)
    lines = [f"FROM ./{file}"]
    if joints:
        lines.append(f"TEMPLATE {quoted(_general(joints, _begin(tokenizer)))}")
        slots = {CHATS[0][piece.number]: piece for piece in template.frame(CHATS[0]).pieces if isinstance(piece, Slot)}
        for role, text in asking:
            said = replace(slots[role], number=0).text([text])  # what the template strips, Go's cannot
            lines.append(f"{'SYSTEM' if role == 'system' else f'MESSAGE {role}'} {quoted(said)}")
    else:
        lines.append(f"TEMPLATE {quoted(_alone(template, asking, _begin(tokenizer)))}")
    lines += [f"PARAMETER stop {quoted(text)}" for text in _stops(lm)]
    settings: Any = lm.model.generation_config
    lines += [f"PARAMETER num_predict {settings.max_new_tokens}"] if settings.max_new_tokens else []
    return "\n".join([*lines, "PARAMETER temperature 0", "PARAMETER repeat_penalty 1", ""])


def quoted(text: str) -> str:
    """A text as Modelfiles have it. They have no escapes: three quotes, and one at the end, become apostrophes."""
    text = text.replace('"""', "'''")
    return f'"""{text[:-1]}\'"""' if text.endswith('"') else f'"""{text}"""'


def _between(frame: ChatFrame, roles: Sequence[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """What stands between two messages, by their roles; "start" and "end" are those of the chat."""
    before, text = "start", ""
    for piece in frame.pieces:
        if isinstance(piece, Slot):
            yield (before, roles[piece.number]), text
            before, text = roles[piece.number], ""
        else:
            text += piece
    yield (before, "end"), text


def _joints(template: ChatTemplate) -> dict[tuple[str, str], str]:
    """What the template writes between two messages. Empty if that depends on more than the two roles."""
    joints: dict[tuple[str, str], str] = {}
    try:
        for roles in (*CHATS, LONG):
            frame = template.frame(roles)
            if [piece.number for piece in frame.pieces if isinstance(piece, Slot)] != list(range(len(roles))):
                return {}
            for pair, text in _between(frame, roles):
                if joints.setdefault(pair, text) != text:
                    return {}
    except TemplateRefusal:
        return {}
    return joints


def _begin(tokenizer: Any) -> str:
    """What the tokenizer puts before a text by itself, which no template may write again."""
    bos = tokenizer.bos_token_id
    return str(tokenizer.bos_token) if bos is not None and tokenizer("x").input_ids[0] == bos else ""


def _general(joints: dict[tuple[str, str], str], begin: str) -> str:
    """A template in Go's language for any chat. White space between actions would be written, so there is none."""
    cases = [
        f'if and (eq $before "{before}") (eq .Role "{role}") }}}}{{{{ {_go(text.removeprefix(begin))} }}}}'
        for (before, role), text in joints.items()
        if role != "end"
    ]
    end = f'{{{{ if eq $before "user" }}}}{{{{ {_go(joints["user", "end"])} }}}}{{{{ end }}}}'
    chosen = "{{ " + "{{ else ".join(cases) + "{{ end }}"
    return f'{{{{ $before := "start" }}}}{{{{ range .Messages }}}}{chosen}{{{{ .Content }}}}' + (
        f"{{{{ $before = .Role }}}}{{{{ end }}}}{end}"
    )


def _alone(template: ChatTemplate, asking: Sequence[tuple[str, str]], begin: str) -> str:
    """A template in Go's language for one question alone."""
    roles = (*(role for role, _ in asking), "user")
    pieces = template.frame(roles).pieces
    texts = [text for _, text in asking]
    written = [
        "{{ .Prompt }}"
        if isinstance(piece, Slot) and piece.number == len(asking)
        else f"{{{{ {_go(piece.text(texts) if isinstance(piece, Slot) else piece)} }}}}"
        for piece in pieces
        if piece != ""
    ]
    return "".join(written).replace(_go(begin)[:-1], '"', 1) if begin else "".join(written)


def _go(text: str) -> str:
    """A text as a string of Go's."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    # A Modelfile drops what is not printable.
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def _stops(lm: LanguageModel) -> list[str]:
    """The texts of the tokens that end an answer."""
    tokenizer: Any = lm.tokenizer
    found = (tokenizer.decode([id]) for id in sorted(lm.stop_ids))
    return [text for text in dict.fromkeys(found) if 0 < len(text) <= LONGEST_STOP]
