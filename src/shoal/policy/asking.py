"""The way of asking as part of a model: what stands before a question goes into the chat template that is saved.

    source = asked_source(template, [Message("system", "Answer in metres.")], tokenizer)
    taken(source)                   # the messages, and the model's own template

A chat that begins with the user then reads as it did in the run: the system text and the worked examples come first. A
chat with a system message of its own is left as it is. `load` takes the messages out again, so that a run from such a
folder asks in its own way alone. The messages stand in the template as literals: nothing in them is evaluated.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from shoal.policy.plain import PlainText
from shoal.policy.template import TODAY, ChatTemplate
from shoal.rollout import Message
from shoal.untrusted import encodable, parse_json

BEGIN: Final = "{%- set asked = "
END: Final = " %}"
ASK: Final = '{%- if messages[0].role == "user" %}\n{%- set messages = asked + messages %}\n'
MERGE: Final = (
    '{%- set messages = [{"role": "user", "content": messages[0].content + "\\n\\n" + messages[1].content}]'
    " + messages[2:] %}\n"
)
"""For a template without a system role: what the system says stands before the first text of the user."""
OWN: Final = "{#- The model's own template: #}\n"
"""Ends what is put before it. Each line ends with a block, so the line end is dropped and nothing is written."""
CALL: Final = re.compile(r"strftime_now\(\s*[\"']([^\"']*)[\"']\s*\)")
"""Where a template asks for the date."""
DATED: Final = re.compile(rf'\("[^"]*" or ({CALL.pattern})\)')
"""The same with the date of the run, on which answers may depend."""
DATE: Final = re.compile(rf"set date_string = (?:{CALL.pattern}|[\"']([^\"']*)[\"'])")
"""Where a template of Llama 3's sets the date, unless it is given."""
ROLES: Final = ("system", "user", "assistant")
LONGEST: Final = 2**20
"""Characters of the messages that are read."""


def asked_source(template: ChatTemplate, asking: Sequence[Message], tokenizer: Any) -> str:
    """The chat template that says `asking` before a user's question, in Jinja. Its date is that of the run."""
    source = CALL.sub(lambda call: f"({_literal(TODAY.strftime(call[1]))} or {call[0]})", template.source)
    date = DATE.search(template.source)
    if not asking and source == template.source and not date:
        return source
    systems = [message.content for message in asking if message.role == "system"]
    others = [(message.role, message.content) for message in asking if message.role != "system"]
    chat = [*([("system", "\n\n".join(systems))] if systems else []), *others]
    ask = ASK + (MERGE if systems and not template.takes((*(role for role, _ in chat), "user")) else "")
    plain = PlainText(tokenizer)
    # without control characters, which not every reader of Jinja knows how to write
    chat = [(role, re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "", encodable(text))) for role, text in chat]
    messages = [{"role": role, "content": template.content(plain.defused(text))} for role, text in chat]
    if date:  # llama.cpp says that of the day
        day = TODAY.strftime(date[1]) if date[1] else date[2]
        ask = f"{{%- set date_string = {_literal(day)} %}}\n{ask}"
    return f"{BEGIN}{_literal(messages)}{END}\n{ask}{{%- endif %}}\n{OWN}{source}"


def taken(source: str) -> tuple[tuple[Message, ...], str]:
    """The messages that `asked_source` put into a chat template, and the template without them. A stranger may have
    written it: what does not have this form is taken for the model's own."""
    first, _, rest = source.partition("\n")
    _, mark, own = rest.partition(OWN)
    if not (first.startswith(BEGIN) and first.endswith(END) and mark) or len(first) > LONGEST:
        return (), source
    try:
        messages = tuple(map(_message, parse_json(first[len(BEGIN) : -len(END)].encode())))
    except (KeyError, TypeError, ValueError, IndexError):
        return (), source
    return messages, DATED.sub(r"\1", own)


def _message(entry: Any) -> Message:
    """Raises one of the errors that `taken` expects."""
    content = entry["content"] if isinstance(entry["content"], str) else entry["content"][0]["text"]
    if entry["role"] not in ROLES or not isinstance(content, str):
        raise ValueError("no message")
    return Message(entry["role"], content)


def _literal(value: Any) -> str:
    """A literal that is the same in JSON and in Jinja."""
    return json.dumps(value, ensure_ascii=False)
