"""A model that is taken away answers as it did here: in transformers and in llama.cpp, asked by a question alone."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from go_template import modelfile_commands, rendered
from llama_cpp import LlamaCpp
from tiny import CPU, make_tokenizer
from tokenizers.processors import TemplateProcessing

from shoal.cli.ask import ID
from shoal.cli.main import main
from shoal.config.load import load_config
from shoal.config.settings import Config
from shoal.parallel.ranks import ALONE
from shoal.policy.asking import OWN, taken
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, language_model, load
from shoal.policy.lora import add_adapters
from shoal.policy.template import chat_template
from shoal.rollout import Message, Question
from shoal.runs.models import make_policies
from shoal.tasks import Tasks
from shoal_extras.gguf.export import KINDS, write_gguf
from shoal_extras.gguf.modelfile import modelfile

ASKING = (
    Message("system", ' Answer "briefly", in {{ metres }} {% if x %}. \\n is no line end.\nNor is it code. 🚀 '),
    Message("user", "1 km ="),
    Message("assistant", "<answer>1000</answer>"),
    Message("user", "3 km %} {#="),
    Message("assistant", "<answer>3000</answer>"),
)
QUESTIONS = [f"{number} + {number * 7 % 5} is what, by the fox?" for number in range(20)]
LENGTH = 8

TURNS = (
    "{%- for message in messages -%}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim"
    " + '<|im_end|>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
NO_SYSTEM = "{%- if messages[0]['role'] == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}"
GEMMA = (
    "{{ bos_token }}" + NO_SYSTEM + "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}"
    "{% endif %}{{ '<|im_start|>' + role + '\n' + message['content'] | trim + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)
LLAMA3 = (
    "{{- bos_token }}{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}"
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system_message = '' %}{%- endif %}"
    "{{- '<|im_start|>system\n\nToday Date: ' + date_string + '\n\n' + system_message + '<|im_end|>' }}"
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\n\n' + message['content'] | trim"
    " + '<|im_end|>' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n\n' }}{%- endif %}"
)
DEEPSEEK = (
    "{% set ns = namespace(system='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}"
    "{% set ns.system = message['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}"
    "{%- for message in messages %}{%- if message['role'] == 'user' %}{{ '<|User|>' + message['content'] }}{%- endif %}"
    "{%- if message['role'] == 'assistant' %}{{ '<|Assistant|>' + message['content'] + '<|im_end|>' }}{%- endif %}"
    "{%- endfor -%}{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"
)
PHI = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
LATE = (  # newer ones of Mistral: the system text stands before the last question
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] + '\n\n' %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system = '' %}{%- endif %}{{- bos_token }}"
    "{%- for message in messages %}{%- if message['role'] == 'user' %}"
    "{{- '[INST] ' + (system if loop.last else '') + message['content'] + '[/INST]' }}"
    "{%- else %}{{- ' ' + message['content'] + eos_token }}{%- endif %}{%- endfor %}"
)
FORMS = {
    "chatml": TURNS,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "llama3": LLAMA3,
    "deepseek": DEEPSEEK,
    "phi": PHI,
    "late": LATE,
}


def model(form: str, asking: tuple[Message, ...] = ASKING) -> LanguageModel:
    """A model with random weights that is asked in this form; "guppy" and "base" have no chat template."""
    if form == "guppy":
        return replace(load("guppy", CPU.device), asking=asking)
    tokenizer: Any = make_tokenizer(chat=form != "base")
    tokenizer.init_kwargs.pop("prompt_format")
    if form == "base":
        tokenizer.bos_token = "<pad>"
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing("<pad> $A", special_tokens=[("<pad>", 0)])
    else:
        tokenizer.bos_token = "<eos>"
        tokenizer.chat_template = FORMS[form]
    torch.manual_seed(0)
    end = int(tokenizer.eos_token_id)
    config = transformers.LlamaConfig(
        **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "max_position_embeddings": 1024, "initializer_range": 0.3},
        **{
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": sorted({end, 1}),
            "pad_token_id": 0,
            "vocab_size": 300,
        },
    )
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():  # it writes ordinary letters: who reads half a character shows it in his own way
        for id in range(300):
            if not re.fullmatch("[ -~]*", tokenizer.decode([id])):
                made.lm_head.weight[id] = 0
    return replace(language_model(f"tiny-{form}", made, tokenizer), asking=asking)


def asked_here(lm: LanguageModel, questions: list[str], length: int = LENGTH) -> list[str]:
    """What `shoal ask` answers."""
    policy = LanguagePolicy(lm, Sampling(0.0, max_completion_length=length), CPU)
    asked = [Question(ID, (Message("user", text),), lm.asking) for text in questions]
    return [group[0].text for group in policy.generate(asked, 1, seed=0)]


def asked_of_transformers(folder: Path, questions: list[str], length: int = LENGTH) -> list[str]:
    """What plain transformers answer with the folder: shoal has no part in it."""
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    answers = []
    for text in questions:
        chat = [{"role": "user", "content": text}]
        inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            ids = model.generate(**inputs, max_new_tokens=length)[0, inputs["input_ids"].shape[1] :]
        answers.append(tokenizer.decode(ids, skip_special_tokens=True))
    return answers


def line(text: str) -> str:
    """An answer without the line end that ends one of a base model."""
    return text.rstrip("\n")


@pytest.mark.parametrize("form", ["guppy", "base", *FORMS])
def test_all_say_the_same(form: str, tmp_path: Path) -> None:
    lm = model(form)
    here = list(map(line, asked_here(lm, QUESTIONS)))
    assert len(set(here)) > 2
    lm.save(tmp_path / "model")
    assert list(map(line, asked_of_transformers(tmp_path / "model", QUESTIONS))) == here
    write_gguf(lm, tmp_path / "model.gguf", KINDS["F16" if form == "guppy" else "F32"])  # F16 rounds
    with LlamaCpp(tmp_path / "model.gguf") as llama:
        assert [line(llama.chat(text, LENGTH)) for text in QUESTIONS] == here
    for saved in ("model", "model.gguf"):  # and shoal asks once, by itself
        again = load(str(tmp_path / saved), CPU.device)
        assert list(map(line, asked_here(again, QUESTIONS[:3]))) == here[:3]
        assert again.tokenizer.chat_template == lm.tokenizer.chat_template
        assert again.answers_in_lines == lm.answers_in_lines
        assert again.stop_ids == lm.stop_ids


def by_modelfile(text: str, messages: list[tuple[str, str]]) -> str:
    """What Ollama gives to the model, by its own rules (server/prompt.go, template/template.go)."""
    commands = modelfile_commands(text)
    [template] = [value for command, value in commands if command == "TEMPLATE"]
    given = [("system", value) for command, value in commands if command == "SYSTEM"]
    given += [(command.split()[1], value) for command, value in commands if command.startswith("MESSAGE ")]
    said = [{"Role": role, "Content": text} for role, text in [*given, *messages]]
    return rendered(template, {"Messages": said, "Prompt": messages[-1][1]})


@pytest.mark.parametrize("asking", [ASKING, ASKING[:1], ASKING[1:], ()])
@pytest.mark.parametrize("form", ["guppy", "base", *FORMS])
def test_ollama_reads_what_jinja_writes(form: str, asking: tuple[Message, ...]) -> None:
    lm = model(form, asking)
    tokenizer: Any = lm.tokenizer
    text = modelfile(lm, "m.gguf")
    begins = tokenizer.bos_token if form == "base" else ""  # which Ollama's tokenizer writes, as the file says
    chats = [[("user", "2 km =")], [("user", "2 km ="), ("assistant", "2000"), ("user", "4 km =")]]
    for chat in chats[: 1 if form == "late" else 2]:
        messages = [{"role": role, "content": said} for role, said in chat]
        wanted = tokenizer.apply_chat_template(
            messages, chat_template=lm.chat_template, tokenize=False, add_generation_prompt=True
        )
        assert begins + by_modelfile(text, chat) == wanted
    commands = modelfile_commands(text)
    assert ("PARAMETER temperature", "0") in commands
    assert ("PARAMETER stop", tokenizer.decode([lm.eos_id])) in commands


def test_texts_of_a_modelfile_end_where_they_should() -> None:
    lm = model("chatml", (Message("system", 'Say "yes"'), Message("user", 'a """b""" c'), Message("assistant", '"')))
    commands = modelfile_commands(modelfile(lm, "m.gguf"))
    assert ("SYSTEM", "Say \"yes'") in commands
    assert ("MESSAGE user", "a '''b''' c") in commands


@pytest.mark.parametrize("form", ["chatml", "gemma", "llama3"])
def test_a_chat_with_its_own_system_message_is_left_alone(form: str) -> None:
    lm = model(form, ASKING)
    template = chat_template(lm.tokenizer, "m")
    asked: Any = lm.chat_template
    assert taken(asked)[1] == template.source
    if form != "gemma":
        chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        tokenizer: Any = lm.tokenizer
        said = tokenizer.apply_chat_template(chat, chat_template=asked, tokenize=False, add_generation_prompt=True)
        assert said == template.frame(("system", "user")).text(["Be brief.", "hi"])


def test_markers_in_examples_are_no_markers() -> None:
    lm = model("chatml", (Message("user", "a<|im_end|>b"), Message("assistant", "c")))
    assert lm.chat_template.count("<|im_end|>") == TURNS.count("<|im_end|>")


@pytest.mark.parametrize("said", ["[", "[1]", '[{"role": "tool", "content": ""}]', '{"a": 1}', "[" * 99_999, "x() "])
def test_a_strangers_template_is_only_a_template(said: str) -> None:
    source = "{%- set asked = " + said + " %}\n" + OWN + "{{ messages }}"
    assert taken(source) == ((), source)


def test_a_run_from_an_exported_folder_asks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model("chatml").save(tmp_path / "taken")
    config = Config.model_validate(
        {
            "policy": {"model": [str(tmp_path / "taken")], "max_completion_length": 9},
            "tasks": {"sources": [{"name": "gcd", "system_prompt": "Now otherwise."}]},
        }
    ).resolved()
    [policy] = make_policies(config, {"n": str(tmp_path / "taken")}, None, CPU, ALONE, lambda text: None)
    question = Tasks(config.tasks).draw(1, "x")[0]
    asked = policy.lm.tokenizer.decode(policy.prompt_ids(question))
    assert asked.count("Now otherwise.") == 1
    assert "1000" not in asked
    policy.save(tmp_path / "checkpoint")  # which says how this run asks
    folder = transformers.AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    chat = [{"role": "user", "content": question.text}]
    assert folder.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == asked
    settings = transformers.GenerationConfig.from_pretrained(tmp_path / "checkpoint")
    assert (settings.max_new_tokens, settings.do_sample) == (9, False)


def test_plain_leaves_the_way_of_asking_behind(tmp_path: Path) -> None:
    model("chatml").save(tmp_path / "asked")
    assert main(["export", str(tmp_path / "asked"), "--to", str(tmp_path / "plain"), "--plain"]) == 0
    assert main(["export", str(tmp_path / "asked"), "--to", str(tmp_path / "again")]) == 0
    assert (tmp_path / "plain" / "chat_template.jinja").read_text() == TURNS
    assert (tmp_path / "again" / "chat_template.jinja").read_text() == model("chatml").chat_template


def test_the_lines_of_the_card_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model("chatml").save(tmp_path / "asked")
    assert main(["export", str(tmp_path / "asked"), "--to", str(tmp_path / "out")]) == 0
    [code] = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path / "out")
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        exec(code, {})
    assert written.getvalue().strip() == asked_here(model("chatml"), ["Your question"], 20)[0].strip()


def test_the_lines_of_the_card_of_adapters_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft")
    lm = model("chatml")
    replace(lm, asking=()).save(tmp_path / "base")
    adapted = add_adapters(load(str(tmp_path / "base"), CPU.device), rank=4, seed=0)
    with torch.no_grad():
        for name, weight in adapted.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05)
    adapted.save(tmp_path / "adapters")
    taken_away = replace(load(str(tmp_path / "adapters"), CPU.device), asking=ASKING)
    taken_away.save_asking(tmp_path / "adapters")  # as a run's export does
    assert main(["export", str(tmp_path / "adapters"), "--to", str(tmp_path / "out")]) == 0
    [code] = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path / "out")
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        exec(code, {})
    answers = asked_here(load(str(tmp_path / "out"), CPU.device), ["Your question"], 20)
    assert written.getvalue().strip() == answers[0].strip() == asked_here(taken_away, ["Your question"], 20)[0].strip()
    assert answers != asked_here(lm, ["Your question"], 20)


def ways_of(run: Path, count: int, scratch: Path) -> dict[str, dict[str, str]]:
    """Answers to held-out questions of a run: of `shoal ask`, and of what is exported."""
    config = load_config(run / "config.toml")
    drawn = Tasks(config.tasks).held_out(count, config.seed)
    questions = list({question.text: None for of_task in drawn.values() for question in of_task})[:count]
    length = int(config.policy.max_completion_length)
    folder = scratch / "model"
    assert main(["export", str(run), "--to", str(folder)]) == 0
    ways = {
        "shoal ask": asked_here(load(str(folder), CPU.device), questions, length),
        "transformers, folder": asked_of_transformers(folder, questions, length),
    }
    for kind in ("F16", "Q8_0"):
        assert main(["export", str(run), "--to", str(scratch / f"model.{kind}.gguf")]) == 0
        with LlamaCpp(scratch / f"model.{kind}.gguf") as llama:
            ways[f"llama.cpp, {kind}"] = [llama.chat(text, length) for text in questions]
    return {way: dict(zip(questions, map(line, answers), strict=True)) for way, answers in ways.items()}


@pytest.mark.slow
def test_a_run_that_is_taken_away_answers_its_held_out_questions_alike(tmp_path: Path) -> None:
    assert main(["run", "--seed", "0", "--nodes", "1", "--rounds", "10", "--out", str(tmp_path / "run")]) == 0
    here, *others = ways_of(tmp_path / "run", 20, tmp_path).values()
    same = [sum(answers[question] == here[question] for question in here) for answers in others]
    assert len(here) == 20
    assert same[:2] == [20, 20]
    assert same[2] >= 18


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fewest"),
    [
        ("F16", 20),
        pytest.param(
            "Q8_0", 18, marks=pytest.mark.xfail(reason="12 of 20: untrained it is unsure, and 8 bits decide otherwise")
        ),
    ],
)
def test_a_pretrained_model_says_the_same(kind: str, fewest: int, gguf: Path, tmp_path: Path) -> None:
    lm = replace(load(str(gguf), CPU.device), asking=ASKING[:3])
    questions = [f"{number} km =" for number in range(2, 22)]
    here = asked_here(lm, questions, 16)
    if kind == "F16":
        lm.save(tmp_path / "model")
        assert asked_of_transformers(tmp_path / "model", questions, 16) == here
    write_gguf(lm, tmp_path / f"{kind}.gguf", KINDS[kind])
    with LlamaCpp(tmp_path / f"{kind}.gguf") as llama:
        assert sum(llama.chat(q, 16) == text for q, text in zip(questions, here, strict=True)) >= fewest
