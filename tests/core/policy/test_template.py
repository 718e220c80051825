"""Chat templates are programs from a model's folder: they run in a process with limits, and never see a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import CHATML, CPU, make_lm, make_question, make_tokenizer

from shoal.errors import UserError
from shoal.policy import template as module
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.policy.template import ChatTemplate, TemplateRefusal, chat_template

ASSISTANT = "{% if add_generation_prompt %}A: {% endif %}"
EACH = "{% for m in messages %}{{ m.role }}: BODY\n{% endfor %}" + ASSISTANT
ENDLESS = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "a power": "{{ 9 ** (9 ** 9) }}",
}
LARGE = {
    "a string times a number": "{{ 'a' * 10 ** 11 }}",
    "a string that doubles": "{% set n = namespace(s='aa') %}"
    "{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "a filter": "{{ 'a' | center(10 ** 11) }}",
    "a format": "{{ '%0999999999999d' % 1 }}",
    "much output": "{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
}


def template(source: str, **variables: str) -> ChatTemplate:
    return ChatTemplate(source, variables)


def text(source: str, *texts: str, roles: tuple[str, ...] = ("user",), **options: Any) -> str:
    return template(source).frame(roles, **options).text(list(texts))


def test_a_chat_is_what_transformers_makes_of_it() -> None:
    tokenizer: Any = make_tokenizer(chat=True)
    tokenizer.chat_template = "{{ bos_token }}{{ eos_token }}" + CHATML
    found = chat_template(tokenizer, "m")
    assert found
    for roles in (("user",), ("system", "user"), ("user", "assistant"), ("user", "assistant", "user")):
        texts = [f"  what {role} says\n" for role in roles]
        chat = [{"role": role, "content": said} for role, said in zip(roles, texts, strict=True)]
        expected = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=roles[-1] == "user")
        assert found.frame(roles).text(texts) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [("{{ m.content }}", " a \n"), ("{{ m.content | trim }}", "a"), ("{{ m.content.rstrip() }}", " a")],
)
def test_a_template_that_strips_texts_strips_them(body: str, expected: str) -> None:
    assert text(EACH.replace("BODY", body), " a \n") == f"user: {expected}\nA: "


def test_a_text_is_no_template_and_none_reads_it() -> None:
    source = "{% if 'secret' in messages[0].content %}found{% endif %}{{ messages[0].content }}"
    assert text(source, "secret {{ 7 * 7 }} qzslot0qz {% raw %}") == "secret {{ 7 * 7 }} qzslot0qz {% raw %}"


def test_digits_without_end_are_no_slot() -> None:
    source = "{{ messages[0].content }}qzslot" + "1" * 5000 + "qz"
    assert text(source, "a") == "aqzslot" + "1" * 5000 + "qz"


def test_what_templates_use() -> None:
    assert text("{{ messages[0].content }}{{ strftime_now('%Y-%m-%d') }}", "a") == "a2025-01-01"
    assert text("{{ messages[0].content }}{{ {'é': '<'} | tojson }}", "a") == 'a{"é": "<"}'
    assert text("{% generation %}{{ messages[0].content }}{% endgeneration %}b", "a") == "ab"
    assert text("{% for m in messages %}{{ m.content }}{% break %}{% endfor %}", "a") == "a"
    thinks = "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}"
    assert text(thinks, "a") == "a"
    assert text(thinks, "a", thinking=False) == "a</think>"


@pytest.mark.parametrize("source", ["hello", "{{ messages[0].content | upper }}", "{{ messages[0].content[:3] }}"])
def test_a_template_that_leaves_out_the_question_is_refused(source: str) -> None:
    with pytest.raises(TemplateRefusal, match="leaves out what the user says"):
        text(source, "a")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('not you') }}", "not you"),
        ("{{ nobody.knows }}", "UndefinedError"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "TypeError"),
    ],
)
def test_a_template_that_raises_is_an_error_of_one_line(source: str, said: str) -> None:
    tokenizer: Any = make_tokenizer()
    tokenizer.chat_template = source
    with pytest.raises(UserError, match="model 'my-model'") as caught:
        chat_template(tokenizer, "my-model")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_template_of_several_is_that_for_a_chat() -> None:
    tokenizer: Any = make_tokenizer()
    tokenizer.chat_template = {"default": "{{ messages[0].content }}!", "tool_use": "?"}
    found = chat_template(tokenizer, "m")
    assert found
    assert found.frame(("user",)).text(["a"]) == "a!"
    tokenizer.chat_template = {"tool_use": "?", "rag": "?"}
    with pytest.raises(UserError, match="model 'm'"):
        chat_template(tokenizer, "m")


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_that_does_not_end_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 1)
    with pytest.raises(UserError, match="does not end within 1 seconds of processor time"):
        template(ENDLESS[name] + EACH)


@pytest.mark.parametrize("name", LARGE)
def test_a_template_that_takes_all_memory_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="takes more than 512 MB of memory"):
        template(LARGE[name] + EACH)


def test_a_model_whose_template_does_not_end_is_refused_at_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 1)
    lm = make_lm()
    lm.tokenizer.chat_template = ENDLESS["loops in loops"]
    lm.save(tmp_path, plain=True)
    with pytest.raises(UserError, match=f"model '{tmp_path}'.*chat template does not end"):
        load(str(tmp_path), CPU.device)


def test_no_question_runs_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = make_lm(chat=True)
    policy = LanguagePolicy(lm, Sampling(), CPU)
    monkeypatch.setattr(module, "_in_process", None)
    for number in range(3):
        assert policy.prompt_ids(make_question(f"{number} + 2 =", system="Be brief."))
