"""The part of Go's templates that shoal writes into Modelfiles, and Modelfiles themselves, as Ollama reads them.

rendered('{{ range .Messages }}{{ .Content }}{{ end }}', {"Messages": [{"Role": "user", "Content": "hi"}]})

Compared once with Go 1.27's text/template by hand, for all forms of the tests. Go's own would need its tools in CI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Scope = dict[str, Any]
Write = Callable[[Scope], str]


def rendered(source: str, data: Scope) -> str:
    parts = iter(re.split(r"\{\{ ((?:\"(?:\\.|[^\"\\])*\"|[^\"])*?) \}\}", source))
    written, end = _block(_tokens(parts))
    assert not end
    return written({".": data})


def _tokens(parts: Iterator[str]) -> Iterator[tuple[bool, str]]:
    for number, part in enumerate(parts):
        if part:
            yield bool(number % 2), part


def _block(tokens: Iterator[tuple[bool, str]]) -> tuple[Write, str]:
    """Up to the action that ends it, which is given, too."""
    steps: list[Write] = []
    for action, text in tokens:
        if not action:
            assert "{{" not in text
            steps.append(lambda scope, text=text: text)  # type: ignore[misc]
        elif text == "end" or text.startswith("else"):
            return lambda scope: "".join(step(scope) for step in steps), text
        else:
            steps.append(_step(text, tokens))
    return lambda scope: "".join(step(scope) for step in steps), ""


def _step(text: str, tokens: Iterator[tuple[bool, str]]) -> Write:
    if text.startswith("if "):
        then, end = _block(tokens)
        other: Write = lambda scope: ""  # noqa: E731
        if end.startswith("else if "):
            other = _step(end.removeprefix("else "), tokens)
        return lambda scope: (then if _value(text[3:], scope) else other)(scope)
    if text.startswith("range "):
        body, _ = _block(tokens)

        def each(scope: Scope) -> str:
            written = ""
            for item in _value(text[6:], scope):
                inner = scope | {".": item}
                written += body(inner)
                scope.update({name: inner[name] for name in scope if name != "."})
            return written

        return each
    if assigned := re.fullmatch(r"(\$\w+) :?= (.+)", text):
        return lambda scope: scope.update({assigned[1]: _value(assigned[2], scope)}) or ""
    return lambda scope: str(_value(text, scope))


def _value(text: str, scope: Scope) -> Any:
    if both := re.fullmatch(r"and \((.+?)\) \((.+)\)", text):
        return _value(both[1], scope) and _value(both[2], scope)
    if same := re.fullmatch(r"eq (\S+) (\S+)", text):
        return _value(same[1], scope) == _value(same[2], scope)
    if text.startswith('"'):
        return json.loads(re.sub(r"\\U([0-9a-f]{8})", lambda code: f"\\u{code[1][4:]}", text))
    return scope[text] if text.startswith("$") else scope["."][text.removeprefix(".")]


def modelfile_commands(text: str) -> list[tuple[str, str]]:
    """The commands of a Modelfile with their values, as Ollama's parser has them: what is printable and white space."""
    found = re.findall(r'^(FROM|TEMPLATE|SYSTEM|MESSAGE \w+|PARAMETER \w+) (?:"""(.*?)"""|(.*?))$', text, re.M | re.S)
    shown = [(command, quoted or bare) for command, quoted, bare in found]
    return [(c, "".join(letter for letter in v if letter.isprintable() or letter in "\n\t")) for c, v in shown]
