"""Chat templates: programs that come with a model. They run once, in a process with limits, and never read a text.

    template = chat_template(tokenizer, "my-model")
    frame = template.frame(("system", "user"))
    frame.text(["Be brief.", "2 + 2 ="])

While the template runs, a slot stands for the text of each message. Texts are put into the slots afterwards: so no
template reads or changes what others wrote, and a prompt needs no run of the template. A template that does not end,
takes too much memory or leaves out the question is an error when the model is loaded.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from shoal.child import command, environment, limit
from shoal.errors import UserError, in_brief

SECONDS = 5
"""Of processor time that a template may take. An honest one takes milliseconds."""
PATIENCE = 120.0
"""Seconds that a template may take on a busy machine, or one that does not limit processor time."""
MEMORY = 512 * 2**20
"""Bytes that a template may take."""
LONGEST = 1_000_000
"""Characters that a template may write around the texts."""
TODAY = datetime(2025, 1, 1)
"""The date that templates get, so that a question is the same prompt on any day."""
PAD = " \n \n "
"""White space around a slot, which shows whether a template strips texts."""
STANDARD = (("user",), ("system", "user"), ("user", "assistant"))
"""Roles of the chats that are rendered when a template is loaded."""

LINES = "{% for message in messages %}{{ message.content.rstrip() }}\n{% endfor %}"
"""One text on each line, for a model that was trained so."""
QUESTIONS = (
    "{% for message in messages %}{% if message.role == 'user' %}Question: {{ message.content.strip() }}\n"
    "{% elif message.role == 'assistant' %}Answer: {{ message.content.strip() }}\n\n"
    "{% else %}{{ message.content.strip() }}\n\n{% endif %}{% endfor %}{% if add_generation_prompt %}Answer:{% endif %}"
)
"""For a base model without a chat template: a text that goes on with the answer."""
BEGUN = "{{ bos_token }}" + QUESTIONS
"""The same for a tokenizer that begins a text with a token."""
OWN = (LINES, QUESTIONS, BEGUN)
"""shoal's own templates, for models that have none."""

COMMAND = command("shoal.policy.template")


class TemplateRefusal(UserError):  # noqa: N818
    """A chat template raised an error for a chat, or left out a text."""


@dataclass(frozen=True)
class Slot:
    """Where a text stands in a frame."""

    number: int
    """Of the message."""
    left: bool
    """Whether white space stays at the beginning of the text."""
    right: bool

    def text(self, texts: Sequence[str]) -> str:
        text = texts[self.number]
        text = text if self.left else text.lstrip()
        return text if self.right else text.rstrip()


@dataclass(frozen=True)
class ChatFrame:
    """A chat as the template writes it, with slots."""

    pieces: tuple[str | Slot, ...]

    def text(self, texts: Sequence[str]) -> str:
        """The chat in which the messages say `texts`."""
        return "".join(piece.text(texts) if isinstance(piece, Slot) else piece for piece in self.pieces)


class ChatTemplate:
    """One template with the variables of its tokenizer."""

    def __init__(self, source: str, variables: dict[str, str]) -> None:
        """Raises `UserError` if it does not end or takes too much memory for a usual chat."""
        self.source = source
        self._variables = variables
        self._rendered: dict[str, str | TemplateRefusal] = {}
        self._in_parts = False
        self._render([_chat(roles, thinking) for roles in STANDARD for thinking in (True, False)])
        if "image" in source and not self.takes(("user",)):  # that of a vision-language model may ask for parts
            self._in_parts = True

    def frame(self, roles: tuple[str, ...], thinking: bool = True, pictures: int = 0) -> ChatFrame:
        """A chat of these roles. After the user the assistant's turn begins. Templates that let a model think first are
        asked not to if not `thinking`; others ignore it. `pictures`: how many stand before the last text of the user.
        Where the template takes no system message, what it says goes before the first text of the user.

        Raises `TemplateRefusal` for roles that the template does not take or leaves out."""
        try:
            return self._frame(roles, thinking, pictures)
        except TemplateRefusal:
            if "system" not in roles or "user" not in roles:
                raise
        systems = [number for number, role in enumerate(roles) if role == "system"]
        kept = [number for number, role in enumerate(roles) if role != "system"]
        first = roles.index("user")
        pieces: list[str | Slot] = []
        for piece in self._frame(tuple(roles[number] for number in kept), thinking, pictures).pieces:
            slot = Slot(kept[piece.number], piece.left, piece.right) if isinstance(piece, Slot) else None
            if slot and slot.number == first:
                for number in systems:
                    pieces += [Slot(number, slot.left or number != systems[0], True), "\n\n"]
                slot = Slot(first, True, slot.right)
            pieces.append(slot or piece)
        return ChatFrame(tuple(pieces))

    def content(self, text: str) -> Any:
        """A text as the template takes it."""
        return [{"type": "text", "text": text}] if self._in_parts else text

    def takes(self, roles: tuple[str, ...]) -> bool:
        """Whether the template itself takes such a chat."""
        try:
            self._frame(roles)
        except TemplateRefusal:
            return False
        return True

    def _frame(self, roles: tuple[str, ...], thinking: bool = True, pictures: int = 0) -> ChatFrame:
        chat = _chat(roles, thinking)
        if self._in_parts or pictures:
            _divide(chat["messages"], pictures)
        key = json.dumps(chat)
        if key not in self._rendered:
            self._render([chat])
        text = self._rendered[key]
        if isinstance(text, TemplateRefusal):
            raise text
        frame = _frame(text, len(roles))
        for number, role in enumerate(roles):
            if not any(isinstance(piece, Slot) and piece.number == number for piece in frame.pieces):
                raise TemplateRefusal(f"the chat template leaves out what the {role} says")
        return frame

    def _render(self, chats: list[dict[str, Any]]) -> None:
        if self.source in OWN:
            answers = [_render(self.source, {**self._variables, **chat}) for chat in chats]
        else:
            answers = _in_process(
                {"source": self.source, "variables": self._variables, "chats": chats, "seconds": SECONDS}
            )
        for chat, (text, error) in zip(chats, answers, strict=True):
            refusal = TemplateRefusal(f"the chat template refuses a chat that shoal needs: {error}")
            self._rendered[json.dumps(chat)] = refusal if error else text


def chat_template(tokenizer: Any, name: str) -> ChatTemplate:
    """The chat template of the model `name`, or the one of `OWN` with which a model without any is asked. Raises
    `UserError` if it does not end, takes too much memory, or refuses or leaves out a question."""
    variables = {key: str(value) for key, value in tokenizer.special_tokens_map.items()}
    try:
        source = tokenizer.get_chat_template() if tokenizer.chat_template else own_template(tokenizer)
        template = _cached(source, tuple(sorted(variables.items())))
        template.frame(("user",))
    except (UserError, ValueError) as error:  # the latter for several templates, of which none is called "default"
        raise UserError(f"model '{name}' cannot be asked anything: {error}") from error
    return template


def own_template(tokenizer: Any) -> str:
    """The one of `OWN` for a model without a chat template."""
    if is_in_lines(tokenizer):
        return LINES
    bos = tokenizer.bos_token_id
    return QUESTIONS if bos is None or tokenizer("x").input_ids[0] != bos else BEGUN


def is_in_lines(tokenizer: Any) -> bool:
    """Whether a model's folder says that it answers in lines ("prompt_format" in tokenizer_config.json)."""
    return bool(tokenizer.init_kwargs.get("prompt_format") == "lines")


@cache
def _cached(source: str, variables: tuple[tuple[str, str], ...]) -> ChatTemplate:
    return ChatTemplate(source, dict(variables))


def _chat(roles: Sequence[str], thinking: bool) -> dict[str, Any]:
    """Placeholders stand for texts. They need not be secret: no template sees anybody's text."""
    messages = [{"role": role, "content": f"{PAD}qzslot{number}qz{PAD}"} for number, role in enumerate(roles)]
    options = {} if thinking else {"enable_thinking": False}
    return {"messages": messages, "add_generation_prompt": roles[-1] == "user", **options}


def _divide(messages: list[dict[str, Any]], pictures: int) -> None:
    """Makes each message a list of parts, as templates of vision-language models take them."""
    shown = max((number for number, message in enumerate(messages) if message["role"] == "user"), default=-1)
    for number, message in enumerate(messages):
        before = [{"type": "image"}] * (pictures if number == shown else 0)
        message["content"] = [*before, {"type": "text", "text": message["content"]}]


def _frame(text: str, count: int) -> ChatFrame:
    pieces: list[str | Slot] = []
    end = 0
    for found in re.finditer(f"({PAD})?qzslot([0-9]{{1,4}})qz({PAD})?", text):
        if int(found[2]) < count:
            pieces += [text[end : found.start()], Slot(int(found[2]), bool(found[1]), bool(found[3]))]
            end = found.end()
    return ChatFrame((*pieces, text[end:]))


def _in_process(request: dict[str, Any]) -> list[tuple[str, str]]:
    """For each chat its text, or what the template raised. Raises `UserError` if the template does not end."""
    try:
        done = subprocess.run(
            COMMAND,
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            env=environment(),
            start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the chat template does not end within {PATIENCE:.0f} seconds") from None
    if done.returncode:
        raise UserError(f"the chat template does not end within {SECONDS} seconds of processor time, or crashes")
    answers: list[tuple[str, str]] = json.loads(done.stdout)
    for _, error in answers:
        if error == "MemoryError":
            raise UserError(f"the chat template takes more than {MEMORY >> 20} MB of memory, or writes as much")
    return answers


def main() -> None:
    """In the process: one request in, one answer out."""
    request = json.loads(sys.stdin.buffer.read())
    limit(MEMORY, request["seconds"])
    answers = [_render(request["source"], {**request["variables"], **chat}) for chat in request["chats"]]
    sys.stdout.buffer.write(json.dumps(answers).encode())


def _render(source: str, variables: dict[str, Any]) -> tuple[str, str]:
    """The text, or what went wrong."""
    parts: list[str] = []
    written = 0
    try:
        for part in _environment().from_string(source).generate(variables):
            parts.append(part)
            written += len(part)
            if written > LONGEST:
                raise MemoryError
    except MemoryError:
        return "", "MemoryError"
    except Exception as error:  # templates raise what they like
        return "", in_brief(error)
    return "".join(parts), ""


def _environment() -> Any:
    """What transformers gives to templates (`transformers.utils.chat_template_utils`)."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the assistant's text for training. Here it has no effect."""

        tags = {"generation"}  # noqa: RUF012 (jinja2's own type)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    extensions = [Generation, "jinja2.ext.loopcontrols"]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = tojson
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": TODAY.strftime}
    return environment
