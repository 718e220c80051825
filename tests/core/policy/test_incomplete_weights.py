"""Parts of a model that are missing, damaged, of another model or tied: right, or refused in a line. Nothing is random
in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import make_lm
from tokenizers import AddedToken
from transformers import AutoModelForCausalLM, AutoTokenizer

from shoal.errors import UserError
from shoal.policy.loading import load
from shoal.policy.trial import reads

GUPPY = Path(str(files("shoal") / "guppy"))
CPU = torch.device("cpu")
IDS = torch.tensor([[5, 6, 7, 8, 9]])


def changed(folder: Path, change: Any) -> str:
    """A copy of guppy with other weights."""
    shutil.copytree(GUPPY, folder)
    save_file(change(load_file(GUPPY / "model.safetensors")), folder / "model.safetensors", {"format": "pt"})
    return str(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weights: dict(list(weights.items())[1:]), "its files lack the weights .*model"),
        (
            lambda weights: {f"_orig_mod.{name}": value for name, value in weights.items()},
            r"lack the weights .* and \d+ more \(they have _orig_mod",
        ),
        (lambda weights: weights | {"value_head.weight": torch.zeros(3)}, "beside the model's the weights value_head"),
        (
            lambda weights: weights | {"model.norm.weight": torch.zeros(3)},
            "have in other shapes the weights model.norm.weight",
        ),
    ],
    ids=["missing", "prefixed", "unexpected", "another shape"],
)
def test_weights_that_are_not_the_models_are_named(tmp_path: Path, change: Any, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        load(changed(tmp_path / "model", change), CPU)
    assert "\n" not in str(caught.value)


def adapters(folder: Path, tied: bool, target: str) -> Any:
    """Writes adapters of a copy of guppy and returns peft's own model of them."""
    peft = pytest.importorskip("peft")
    base = AutoModelForCausalLM.from_pretrained(GUPPY, dtype=torch.float32)
    if not tied:
        base.config.tie_word_embeddings = False
        base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().clone())
    base.save_pretrained(folder / "base")
    AutoTokenizer.from_pretrained(GUPPY).save_pretrained(folder / "base")
    base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=[target, "q_proj"], task_type="CAUSAL_LM"))
    torch.manual_seed(1)
    for name, value in model.named_parameters():
        if "lora_" in name:
            value.data.normal_(0, 0.1)
    model.save_pretrained(folder / "adapters")
    return model.eval()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_adapters_of_tied_matrices_give_what_peft_gives(tmp_path: Path, target: str, tied: bool) -> None:
    theirs = adapters(tmp_path, tied, target)
    ours = load(str(tmp_path / "adapters"), CPU).model.eval()
    with torch.no_grad():
        difference = ours(IDS).logits.log_softmax(-1) - theirs(IDS).logits.log_softmax(-1)
    assert float(difference.abs().max()) < 1e-4


def test_adapters_that_lack_matrices_are_refused(tmp_path: Path) -> None:
    adapters(tmp_path, False, "lm_head")
    file = tmp_path / "adapters" / "adapter_model.safetensors"
    kept = {name: value for name, value in load_file(file).items() if ".layers.0." not in name}
    save_file(kept, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"lack 2 matrices, such as .*layers\.0\."):
        load(str(tmp_path / "adapters"), CPU)


def other_tokens(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / "tokenizer.json"
        settings = json.loads(file.read_text())
        change(settings)
        file.write_text(json.dumps(settings))

    return edit


def write(name: str, content: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(content)

    return edit


def other_vocabulary(size: int) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        model: Any = AutoModelForCausalLM.from_pretrained(GUPPY, dtype=torch.float32)
        model.resize_token_embeddings(size, mean_resizing=False)
        model.save_pretrained(folder)

    return edit


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (without_tokenizer, "it has no tokenizer: tokenizer.json, .* is missing"),
        (write("tokenizer.json", '{"version": "1.0", "added'), "its tokenizer cannot be read: JSONDecodeError"),
        (other_tokens(lambda t: t["model"]["vocab"].update(zzzz=9999)), "has 10000 tokens and its weights 640"),
        (other_vocabulary(100), "its tokenizer has 640 tokens and its weights 100: they belong to different models"),
        (other_vocabulary(2000), "its tokenizer has 640 tokens and its weights 2000: they belong to different models"),
        (write("config.json", '{"model_type": "lla'), "its config.json cannot be read: .* not a valid JSON file"),
        (write("generation_config.json", "{"), "its generation_config.json cannot be read"),
        (write("model.safetensors", "<html>404</html>"), "its weights cannot be read: SafetensorError"),
        (
            write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
            "model.safetensors only points to a file in Git LFS",
        ),
    ],
    ids="no tokenizer|cut|id above|smaller|larger|config|generation config|html|pointer".split("|"),
)
def test_a_part_that_is_damaged_or_of_another_model_is_named(
    tmp_path: Path, edit: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(GUPPY, folder)
    edit(folder)
    with pytest.raises(UserError, match=said) as caught:
        load(str(folder), CPU)
    assert "\n" not in str(caught.value)


def test_what_a_library_says_in_its_second_line_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(GUPPY, folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(settings | {"num_attention_heads": 7}))
    with pytest.raises(UserError, match=r"its config.json cannot be read: .* is not a multiple of .* heads \(7\)"):
        load(str(folder), CPU)


def test_added_tokens_with_their_spaces_and_several_ends_survive(tmp_path: Path) -> None:
    lm = load(str(GUPPY), CPU)
    kinds = [
        AddedToken("<left>", lstrip=True, special=True),
        AddedToken("<right>", rstrip=True, special=True),
        AddedToken("<think>", lstrip=True, rstrip=True, special=False, normalized=False),
    ]
    tokenizer: Any = lm.tokenizer
    tokenizer.add_tokens(kinds)
    model: Any = lm.model
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ends = sorted({*lm.stop_ids, *tokenizer.convert_tokens_to_ids(["<left>", "<right>"])})
    model.generation_config.eos_token_id = ends
    text = "2 +  <left> 2  <right>  = <think> 4"
    wanted = tokenizer(text, add_special_tokens=False).input_ids
    for number in range(2):  # saved and loaded twice
        lm.save(tmp_path / str(number))
        lm = load(str(tmp_path / str(number)), CPU)
        assert lm.stop_ids == set(ends)
        assert lm.tokenizer(text, add_special_tokens=False).input_ids == wanted
        assert str(lm.tokenizer.decode(wanted)) == str(tokenizer.decode(wanted))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_where_positions_depend_on_the_length_a_model_reads_no_more_than_the_original(kind: str) -> None:
    factors = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 2.0, 3.0, 4.0]} if kind == "longrope" else {}
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32, **factors}
    assert reads(make_lm("llama", rope_parameters=rope).model) == 32
    assert reads(make_lm("llama").model) == 128


def twice(folder: Path) -> None:
    AutoModelForCausalLM.from_pretrained(GUPPY).save_pretrained(folder / "shards", max_shard_size="1MB")
    for file in (folder / "shards").glob("model*"):
        shutil.copy(file, folder)


def outside(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"lm_head.weight": "../other/a.safetensors"}}')


def not_a_number(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] = torch.nan
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def marker_without_weights(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    tokenizer.chat_template = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)


def below(folder: Path) -> None:
    shutil.copytree(GUPPY, folder / "checkpoint-10")
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (twice, "it has its weights twice, in model.safetensors and in the files of model.safetensors.index.json"),
        (outside, "names ../other/a.safetensors, which is outside of it"),
        (not_a_number, "its weights model.norm.weight have values that are NaN or infinite"),
        (marker_without_weights, "its chat template writes <|user|>, which has no weights"),
        (below, "holds no model: it has no config.json; there is one in .*checkpoint-10"),
    ],
    ids="twice|outside|NaN|marker|checkpoints".split("|"),
)
def test_a_folder_that_people_report_is_refused_by_its_cause(
    tmp_path: Path, edit: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(GUPPY, folder)
    edit(folder)
    with pytest.raises(UserError, match=said.replace("|", r"\|")) as caught:
        load(str(folder), CPU)
    assert "\n" not in str(caught.value)


def test_constants_of_old_files_are_no_weights(tmp_path: Path) -> None:
    lm = make_lm("gpt2")
    lm.save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors") | {"transformer.h.0.attn.masked_bias": torch.tensor(-1e4)}
    (tmp_path / "model.safetensors").unlink()
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with torch.no_grad():
        assert torch.equal(load(str(tmp_path), CPU).model.eval()(IDS).logits, lm.model(IDS).logits)


def test_an_end_beyond_the_vocabulary_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lm = make_lm("llama")
    lm.model.generation_config.eos_token_id = [lm.eos_id, 10**6]
    lm.model.save_pretrained(tmp_path)
    cast(Any, lm.tokenizer).save_pretrained(tmp_path)
    assert load(str(tmp_path), CPU).stop_ids == {lm.eos_id}
    assert "stop token 1000000 is none of its" in capsys.readouterr().err


def test_an_end_below_zero_is_none(tmp_path: Path) -> None:
    lm = make_lm("llama")
    lm.model.generation_config.eos_token_id = -1
    lm.model.save_pretrained(tmp_path)
    cast(Any, lm.tokenizer).save_pretrained(tmp_path)
    assert load(str(tmp_path), CPU).stop_ids == {lm.eos_id}


def test_adapters_are_asked_by_their_own_chat_template(tmp_path: Path) -> None:
    adapters(tmp_path, False, "v_proj")
    tokenizer = AutoTokenizer.from_pretrained(GUPPY)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tokenizer.save_pretrained(tmp_path / "adapters")
    assert load(str(tmp_path / "adapters"), CPU).chat_template == tokenizer.chat_template


def test_adapters_of_a_base_without_an_end_have_their_tokenizer_s(tmp_path: Path) -> None:
    """A Llama's default is the token 2."""
    adapters(tmp_path, False, "v_proj")
    tokenizer = AutoTokenizer.from_pretrained(GUPPY)
    tokenizer.save_pretrained(tmp_path / "adapters")
    file = tmp_path / "base" / "config.json"
    file.write_text(json.dumps({name: one for name, one in json.loads(file.read_text()).items() if "eos" not in name}))
    (tmp_path / "base" / "generation_config.json").unlink(missing_ok=True)
    assert 2 not in load(str(tmp_path / "adapters"), CPU).stop_ids


def test_adapters_without_weights_are_not_looked_for_on_the_network(tmp_path: Path) -> None:
    adapters(tmp_path, False, "v_proj")
    (tmp_path / "adapters" / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match="have no weights: adapter_model"):
        load(str(tmp_path / "adapters"), CPU)


def test_adapters_that_cannot_be_merged_are_refused(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    make_lm("llama").save(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    peft.get_peft_model(base, peft.LoraConfig(target_modules=["v_proj"], lora_bias=True)).save_pretrained(
        tmp_path / "a"
    )
    with pytest.raises(UserError, match="cannot be merged: RuntimeError: Impossible to merge LoRA"):
        load(str(tmp_path / "a"), CPU)
