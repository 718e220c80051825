"""Modelfiles for Ollama: a chat template that only puts texts around messages is said in Ollama's language."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tiny import make_lm

from shoal.export.modelfile import go_template, modelfile_of
from shoal.policy.loading import load

SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe good.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
THINKS = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>{% endif %}"
)
CHAT = [("user", "hi"), ("assistant", "yes?"), ("user", "2+2")]


def rendered(template: str, chat: list[tuple[str, str]], system: str = "") -> str:
    """What Ollama makes of a template as these are: `.System`, and a range over messages by role."""
    text = re.sub(
        r"\{\{ if \.System \}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}",
        lambda found: found[1].replace("{{ .System }}", system) if system else found[2],
        template,
        flags=re.DOTALL,
    )
    head, body = text.split("{{ range .Messages }}")
    user, other = body.split('{{ else if eq .Role "assistant" }}')
    user = user.removeprefix('{{ if eq .Role "user" }}')
    other = other.removesuffix("{{ end }}{{ end }}")
    return head + "".join((user if role == "user" else other).replace("{{ .Content }}", said) for role, said in chat)


@pytest.mark.parametrize("source", [None, SYSTEM, GEMMA])
@pytest.mark.parametrize("system", ["", "Be brief."])
def test_it_writes_what_the_chat_template_writes(source: str | None, system: str) -> None:
    lm = make_lm(chat=True)
    tokenizer: Any = lm.tokenizer
    if source:
        tokenizer.chat_template = source
    if source == GEMMA and system:
        return  # it has no system message of its own
    template = go_template(lm)
    assert template is not None
    chat = [{"role": role, "content": said} for role, said in CHAT]
    chat = [{"role": "system", "content": system}, *chat] if system else chat
    wanted = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert rendered(template, CHAT, system) == wanted


def test_a_template_that_does_more_is_left_to_the_file() -> None:
    lm = make_lm(chat=True)
    lm.tokenizer.chat_template = THINKS
    assert go_template(lm) is None
    lm.tokenizer.chat_template = "{% for m in messages %}{{ '{{ evil }}' }}{{ m.content }}{% endfor %}"
    assert go_template(lm) is None
    lm.tokenizer.chat_template = '{% for m in messages %}"""\nSYSTEM no{{ m.content }}{% endfor %}'
    assert go_template(lm) is None
    assert "TEMPLATE" not in modelfile_of(lm, "m.gguf", None)


def test_the_file_names_the_model_and_where_answers_end() -> None:
    lines = modelfile_of(make_lm(chat=True), "m.Q8_0.gguf", 0.7).splitlines()
    assert lines[0].startswith("#")
    assert lines[1] == "FROM ./m.Q8_0.gguf"
    assert lines[-2:] == ["PARAMETER temperature 0.7", 'PARAMETER stop "<|im_end|>"']
    guppy = modelfile_of(load("guppy", make_lm().model.device), "g.gguf", 1.0)
    assert 'TEMPLATE """{{ range .Messages }}{{ .Content }}\n{{ end }}"""' in guppy
    assert 'PARAMETER stop "<eos>"' in guppy
