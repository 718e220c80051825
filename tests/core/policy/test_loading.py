"""Bringing models into memory: what loads, and what is said of what does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ARCHITECTURES, CPU, make_question
from tokenizers.processors import TemplateProcessing

import shoal
from shoal.errors import UserError
from shoal.learn.logprobs import check_architecture
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, display_name, load
from shoal.policy.products import use_fast_products
from shoal.rollout import Completion

DEVICE = CPU.device
MakeModel = Callable[..., LanguageModel]


def logits(lm: LanguageModel) -> torch.Tensor:
    model: Any = lm.model
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([[5, 6, 7, 8, 9]])).logits
    return found


def refusal(name: str | Path) -> str:
    """What is said of a model that cannot be loaded: one line that names it."""
    with pytest.raises(UserError) as caught:
        load(str(name), DEVICE)
    message = str(caught.value)
    assert "\n" not in message
    assert str(name) in message
    return message


def edit(path: Path, **changes: Any) -> None:
    """Changes entries of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def assert_same_model(again: LanguageModel, lm: LanguageModel) -> None:
    for one in (again, lm):  # a policy has had the one multiply so
        use_fast_products(one.model, DEVICE)
    assert torch.equal(logits(again), logits(lm))
    assert (again.stop_ids, again.eos_id, again.pad_id) == (lm.stop_ids, lm.eos_id, lm.pad_id)
    text = " 2 +  2 = 4é\n<eos><|im_end|>"
    assert again.tokenizer.encode(text) == lm.tokenizer.encode(text)
    assert again.tokenizer.chat_template == lm.tokenizer.chat_template


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_was_saved_loads_again(architecture: str, tiny_lm: MakeModel, tmp_path: Path) -> None:
    made = tiny_lm(architecture, chat=True)
    made.save(tmp_path / "first")
    lm = load(str(tmp_path / "first"), DEVICE)
    lm.save(tmp_path / "second")
    again = load(str(tmp_path / "second"), DEVICE)
    assert torch.equal(logits(lm), logits(made))
    assert_same_model(again, lm)


def test_weights_are_float32_whatever_the_file_has(tiny_lm: MakeModel, tmp_path: Path) -> None:
    lm = tiny_lm()
    lm.model.half()
    lm.save(tmp_path)
    assert {p.dtype for p in load(str(tmp_path), DEVICE).model.parameters()} == {torch.float32}


def test_all_ends_are_stop_tokens_and_the_template_says_which_ends_a_turn(tiny_lm: MakeModel, tmp_path: Path) -> None:
    lm = tiny_lm(chat=True)
    end_of_turn, end_of_text = (lm.tokenizer.encode(marker)[0] for marker in ("<|im_end|>", "<eos>"))
    lm.save(tmp_path)
    edit(tmp_path / "generation_config.json", eos_token_id=[end_of_text, end_of_turn])
    edit(tmp_path / "tokenizer_config.json", eos_token="<eos>")
    again = load(str(tmp_path), DEVICE)
    assert again.stop_ids == {end_of_text, end_of_turn}
    assert again.eos_id == end_of_turn


def test_without_padding_token_the_end_pads(tiny_lm: MakeModel, tmp_path: Path) -> None:
    lm = tiny_lm()
    lm.save(tmp_path)
    edit(tmp_path / "tokenizer_config.json", pad_token=None)
    assert load(str(tmp_path), DEVICE).pad_id == lm.eos_id


def test_an_unknown_name_is_an_error_of_one_line() -> None:
    message = refusal("nobody/has-this-model")
    assert "HF_HUB_OFFLINE" in message
    assert "check the name" in message


def test_a_folder_without_a_model_is_an_error_of_one_line(tmp_path: Path) -> None:
    assert "config.json" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", "a/b/c"])
def test_a_path_to_nothing_is_an_error_of_one_line(name: str) -> None:
    assert "is no model" in refusal(name)


def test_a_file_that_is_no_model_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "is no model" in refusal(path)


def test_a_gguf_file_that_is_not_there_is_an_error_of_one_line(tmp_path: Path) -> None:
    assert "there is no file" in refusal(tmp_path / "model.gguf")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"hello, I am no model at all" * 50], ids=["empty", "magic", "text"])
def test_a_gguf_file_of_something_else_is_an_error_of_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert "damaged, cut short" in refusal(path)


def test_a_model_of_which_part_is_missing_is_an_error_of_one_line(tiny_lm: MakeModel, tmp_path: Path) -> None:
    tiny_lm().save(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    assert "cannot be loaded" in refusal(tmp_path)
    weights.unlink()
    assert "cannot be loaded" in refusal(tmp_path)


def test_a_model_without_tokenizer_is_an_error_of_one_line(tiny_lm: MakeModel, tmp_path: Path) -> None:
    tiny_lm().model.save_pretrained(tmp_path)
    assert "cannot be loaded" in refusal(tmp_path)


def test_an_architecture_that_nobody_knows_is_an_error_of_one_line(tiny_lm: MakeModel, tmp_path: Path) -> None:
    tiny_lm().save(tmp_path)
    edit(tmp_path / "config.json", model_type="abacus", architectures=["AbacusForCausalLM"])
    assert "cannot be loaded" in refusal(tmp_path)


def test_a_model_without_end_is_an_error_of_one_line(tiny_lm: MakeModel, tmp_path: Path) -> None:
    tiny_lm().save(tmp_path)
    for file in ("config.json", "generation_config.json"):
        edit(tmp_path / file, eos_token_id=None)
    edit(tmp_path / "tokenizer_config.json", eos_token=None)
    assert "no end-of-sequence token" in refusal(tmp_path)


def without(path: Path, *names: str) -> None:
    """Removes entries from a JSON file."""
    path.write_text(
        json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name not in names})
    )


@pytest.mark.parametrize("settings", [True, False], ids=["generation_config", "none"])
def test_where_no_file_names_an_end_the_tokenizer_does_and_no_default(
    settings: bool, tiny_lm: MakeModel, tmp_path: Path
) -> None:
    """transformers takes the token 2 for the end of a Llama whose files say nothing."""
    made = tiny_lm()
    made.save(tmp_path, plain=True)
    without(tmp_path / "config.json", "eos_token_id")
    without(tmp_path / "generation_config.json", "eos_token_id")
    if not settings:
        (tmp_path / "generation_config.json").unlink()
    end = made.tokenizer.eos_token_id
    assert end != 2
    again = load(str(tmp_path), DEVICE)
    assert (again.stop_ids, again.eos_id) == ({end}, end)
    again.save(tmp_path / "again")
    assert load(str(tmp_path / "again"), DEVICE).stop_ids == {end}
    edit(tmp_path / "tokenizer_config.json", eos_token=None)
    assert "no end-of-sequence token" in refusal(tmp_path)


@pytest.mark.parametrize("end", [99_999, -1])
def test_an_end_that_is_no_token_of_the_model_is_not_taken(end: int, tiny_lm: MakeModel, tmp_path: Path) -> None:
    made = tiny_lm()
    made.save(tmp_path)
    for file in ("config.json", "generation_config.json"):
        edit(tmp_path / file, eos_token_id=end)
    assert load(str(tmp_path), DEVICE).stop_ids == {made.tokenizer.eos_token_id}
    edit(tmp_path / "tokenizer_config.json", eos_token=None)
    assert "no end-of-sequence token" in refusal(tmp_path)


def test_tokens_without_weights_pad_no_text_and_begin_none(tiny_lm: MakeModel, tmp_path: Path) -> None:
    made = tiny_lm()
    made.save(tmp_path)
    edit(tmp_path / "tokenizer_config.json", pad_token="[PAD]")
    assert len(load(str(tmp_path), DEVICE).tokenizer) > made.model.config.vocab_size
    assert load(str(tmp_path), DEVICE).pad_id == made.eos_id
    tokenizer = load(str(tmp_path), DEVICE).tokenizer
    tokenizer.add_special_tokens({"bos_token": "[BOS]"})
    beyond = [("[BOS]", tokenizer.bos_token_id)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="[BOS] $A", special_tokens=beyond)
    tokenizer.save_pretrained(tmp_path)
    assert "its tokenizer writes [BOS], which has no weights" in refusal(tmp_path)


def test_a_model_is_called_by_the_end_of_its_path() -> None:
    assert display_name("models/a/SmolLM2.Q4_1.gguf") == "SmolLM2.Q4_1"
    assert display_name("HuggingFaceTB/SmolLM2-135M") == "SmolLM2-135M"
    assert display_name("guppy") == "guppy"


def test_a_gguf_file_cut_short_is_an_error_of_one_line(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    with smollm2.open("rb") as whole:
        path.write_bytes(whole.read(1_000_000))
    assert "damaged, cut short" in refusal(path)


@pytest.mark.slow
def test_a_gguf_file_loads_answers_saves_and_loads_again(gguf: Path, tmp_path: Path) -> None:
    lm = load(str(gguf), DEVICE)
    check_architecture(lm)
    policy = LanguagePolicy(lm, Sampling(max_completion_length=6), CPU)
    (answers,) = policy.generate([make_question("What is 2 + 2?", system="Be brief.")], 2, seed=0)
    assert all(answer.token_ids for answer in answers)
    policy.sampling = Sampling(max_completion_length=100)
    says_one_line = bool(lm.stop_ids.intersection(lm.tokenizer("\n", add_special_tokens=False).input_ids))
    for text in ("<eos>", "<|im_end|><|im_start|>", "<bos></s>", " a  b\n\n\n c\t\r\n é ﬁ 水 🐟 ", "<end_of_turn>"):
        if says_one_line and "\n" in text:  # a base model
            assert policy.completion_ids(Completion.of(text, "length")) == []
            text = text.replace("\n", " ")
        ids = policy.completion_ids(Completion.of(text, "length"))
        assert not set(ids) & {*lm.stop_ids, *lm.tokenizer.all_special_ids}
        assert lm.tokenizer.decode(ids, skip_special_tokens=True) == text
    policy.save(tmp_path)
    assert_same_model(load(str(tmp_path), DEVICE), lm)


@pytest.mark.parametrize("known", [True, False])
def test_a_model_s_own_code_is_never_run_nor_asked_about(known: bool, tmp_path: Path) -> None:
    """Where transformers has the architecture it takes its own code, otherwise the model is refused."""
    folder = tmp_path / "model"
    shutil.copytree(Path(shoal.__file__).parent / "guppy", folder)
    settings = json.loads((folder / "config.json").read_text())
    settings["auto_map"] = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    settings["model_type"] = settings["model_type"] if known else "own"
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'MARK')!r}, 'w')")
    if known:
        load(str(folder), torch.device("cpu"))
    else:
        with pytest.raises(UserError, match="needs code of its own"):
            load(str(folder), torch.device("cpu"))
    assert not (tmp_path / "MARK").exists()
