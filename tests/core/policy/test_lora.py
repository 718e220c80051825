"""LoRA: only adapters learn, decoding and packed groups see them, peft reads what is saved, and the base stays."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.figures import figures
from tiny import (
    ARCHITECTURES,
    CPU,
    assert_same,
    limit,
    make_lm,
    make_scored,
    plain_logprobs,
    weights,
)

from shoal.cli.main import main
from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.policy.adapters import base_name
from shoal.policy.decoders.base import Sampling
from shoal.policy.decoders.own import sample
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, load, load_base
from shoal.policy.lora import AdaptedModel, add_adapters, restore_adapters
from shoal.rollout import Scored
from shoal.runs.folder import read_metrics

pytest.importorskip("peft")
RANK = 4
EOS = 1


def adapt(base: LanguageModel | None = None, seed: int = 0, moved: bool = False) -> AdaptedModel:
    """A tiny model with adapters, which do something already where `moved`."""
    adapted = add_adapters(base or make_lm(), RANK, seed)
    if moved:
        torch.manual_seed(5)
        with torch.no_grad():
            for parameter in trained(adapted).values():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return adapted


def merge(folder: Path, out: Path) -> None:
    assert main(["export", str(folder), "--to", str(out), "--merge"]) == 0


def policy_of(lm: LanguageModel) -> LanguagePolicy:
    return LanguagePolicy(lm, Sampling(max_completion_length=12), CPU)


def learner_of(
    policy: LanguagePolicy, checkpoint_tokens: int | None = None, max_grad_norm: float = 1.0, **settings: Any
) -> GRPOLearner:
    options: dict[str, Any] = {"checkpoint_tokens": checkpoint_tokens, "max_grad_norm": max_grad_norm}
    return limit(GRPOLearner(policy, LearnerConfig(**settings), PeersConfig(), 1e-2), **options)


def rollouts() -> list[Scored]:
    return [
        make_scored("2 + 2 =", [[5, 9, EOS], [7, EOS], [30, 31, 32, 33, 34], "4", "lazy fox"], [1, 0, 0.5, 1, 0]),
        make_scored("the lazy dog", [[40, 41, EOS], [8]], [0, 1]),
    ]


def trained(lm: LanguageModel) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in lm.model.named_parameters() if p.requires_grad}


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([[5, 6, 7, 8, 9]]), use_cache=False).logits
    return found


def saved_base(folder: Path, **options: Any) -> LanguageModel:
    """A tiny model that has a folder."""
    make_lm(**options).save(folder)
    return load(str(folder), CPU.device)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_only_adapters_learn_and_they_all_do(architecture: str) -> None:
    base = make_lm(architecture)
    before = weights(base.model)
    adapted = adapt(base)
    assert torch.equal(logits(adapted.model), logits(base.model))
    shared = {p.data_ptr() for p in base.model.parameters()}
    assert {p.data_ptr() for p in adapted.model.parameters() if not p.requires_grad} == shared
    names, start = set(trained(adapted)), weights(adapted.model)
    assert names
    assert all(".lora_" in name for name in names)
    learner = learner_of(policy_of(adapted), num_iterations=2)  # in the first step B is 0, and so is A's gradient
    learner.update(rollouts())
    after = weights(adapted.model)
    assert {name for name in names if torch.equal(start[name], after[name])} == set()
    assert_same(weights(base.model), before, 0)
    assert set(map(id, learner.optimizer.state)) == set(map(id, trained(adapted).values()))


@pytest.mark.parametrize("checkpoint_tokens", [10_000, 0])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_of_packed_groups_equal_those_of_separate_answers(architecture: str, checkpoint_tokens: int) -> None:
    lm = adapt(make_lm(architecture), moved=True)
    policy = policy_of(lm)
    learner = learner_of(policy, checkpoint_tokens=checkpoint_tokens, max_grad_norm=1e9)
    found: list[dict[str, torch.Tensor]] = []

    def record(*_: Any) -> None:
        found.append({name: p.grad.clone() for name, p in trained(lm).items() if p.grad is not None})

    learner.optimizer.register_step_pre_hook(record)
    scored = make_scored("2 + 2 =", [[5, 9, EOS], [30, 31, 32, 33], [7, EOS]], [1, 0, 0.5])
    by_hand = copy.deepcopy(lm.model)
    learner.update([scored])
    loss = torch.zeros(())
    for completion, advantage in zip(scored.rollout.completions, [0.5, -0.5, 0.0], strict=True):
        logps = plain_logprobs(by_hand, policy.prompt_ids(scored.question), completion.token_ids or ())
        loss = loss - advantage * logps.sum() / (3 * 12)
    loss.backward()
    expected = {name: p.grad for name, p in by_hand.named_parameters() if p.grad is not None}
    assert expected.keys() == trained(lm).keys()
    assert_same(found[0], expected, 1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_decoding_sees_what_was_learned(architecture: str) -> None:
    lm = adapt(make_lm(architecture), moved=True)
    learner_of(policy_of(lm)).update(rollouts())
    prompts = [[5, 9, 7], [3, 4, 8, 6, 2]]
    groups = sample(lm.model, prompts, 3, Sampling(max_completion_length=6), lm.stop_ids, CPU, range(len(prompts)))
    lm.model.disable_adapters()
    base = [plain_logprobs(lm.model, p, s.token_ids) for p, g in zip(prompts, groups, strict=True) for s in g]
    lm.model.enable_adapters()
    now = [plain_logprobs(lm.model, p, s.token_ids) for p, g in zip(prompts, groups, strict=True) for s in g]
    ours = [torch.tensor(s.logps) for group in groups for s in group]
    torch.testing.assert_close(ours, [logps.detach() for logps in now], rtol=0, atol=1e-4)
    assert (torch.cat(ours) - torch.cat(base)).abs().max() > 0.1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_peft_reads_what_is_saved(architecture: str, tmp_path: Path) -> None:
    from peft import PeftModel

    base = saved_base(tmp_path / "base", architecture=architecture)
    lm = adapt(base, moved=True)
    policy_of(lm).save(tmp_path / "adapters")
    files = {path.name for path in (tmp_path / "adapters").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= files
    assert not {"model.safetensors", "config.json"} & files
    plain = load(str(tmp_path / "base"), CPU.device).model
    assert torch.equal(logits(PeftModel.from_pretrained(plain, tmp_path / "adapters").eval()), logits(lm.model))
    told = json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())
    assert Path(told["base_model_name_or_path"]) == (tmp_path / "base").resolve()
    assert (told["r"], told["lora_alpha"], told["task_type"]) == (4, 32, "CAUSAL_LM")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_merged_adapters_give_the_same_logits(architecture: str, tmp_path: Path) -> None:
    base = saved_base(tmp_path / "base", architecture=architecture)
    lm = adapt(base, moved=True)
    lm.save(tmp_path / "adapters")
    merged = load(str(tmp_path / "adapters"), CPU.device)
    assert (logits(merged.model) - logits(lm.model)).abs().max() < 1e-5
    assert (logits(merged.model) - logits(base.model)).abs().max() > 0.1
    assert (merged.stop_ids, merged.eos_id, merged.pad_id) == (lm.stop_ids, lm.eos_id, lm.pad_id)
    merge(tmp_path / "adapters", tmp_path / "merged")
    again = load(str(tmp_path / "merged"), CPU.device)
    assert torch.equal(logits(again.model), logits(merged.model))
    assert weights(again.model).keys() == weights(base.model).keys()
    assert not (tmp_path / "merged" / "adapter_config.json").exists()
    learner_of(policy_of(again)).update(rollouts())  # it is an ordinary model: all of it learns


@pytest.mark.parametrize("settings", [{}, {"optim": "adafactor"}])
def test_a_resumed_node_goes_on_as_if_nothing_had_happened(settings: dict[str, Any], tmp_path: Path) -> None:
    base = saved_base(tmp_path / "base")
    lm = adapt(base)
    policy = policy_of(lm)
    learner = learner_of(policy, **settings)
    learner.update(rollouts(), seed=1)
    folder = tmp_path / "node"
    folder.mkdir()
    policy.save(folder)
    learner.save(folder)
    resumed = policy_of(restore_adapters(load_base(folder, CPU.device), RANK, folder))
    again = learner_of(resumed, **settings)
    again.load(folder)
    assert learner.update(rollouts(), seed=2) == again.update(rollouts(), seed=2)
    assert_same(weights(resumed.lm.model), weights(lm.model), 0)


def test_adapters_begin_as_their_seed_says() -> None:
    base = make_lm()
    first, again, other = (weights(adapt(base, seed=seed).model) for seed in (1, 1, 2))
    assert_same(first, again, 0)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(str(folder), CPU.device)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_adapters_whose_base_is_gone_or_another_are_an_error_of_one_line(tmp_path: Path) -> None:
    adapt(saved_base(tmp_path / "base"), moved=True).save(tmp_path / "adapters")
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    message = refusal(tmp_path / "adapters")
    assert f"'{tmp_path.resolve() / 'base'}'" in message
    assert "base_model_name_or_path" in message
    for options in ({"seed": 0, "num_hidden_layers": 1}, {"architecture": "gpt2"}):
        make_other(tmp_path / "base", **options)
        message = refusal(tmp_path / "adapters")
        assert "do not fit model" in message or "cannot be merged" in message


def make_other(folder: Path, architecture: str = "llama", **options: Any) -> None:
    from tiny import make_model, make_tokenizer

    tokenizer = make_tokenizer()
    if "num_hidden_layers" in options:
        model = make_model(architecture, len(tokenizer))
        model.model.layers = model.model.layers[:1]
        model.config.num_hidden_layers = 1
    else:
        model = make_model(architecture, len(tokenizer), **options)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_a_damaged_folder_of_adapters_is_an_error_of_one_line(tmp_path: Path) -> None:
    adapt(saved_base(tmp_path / "base"), moved=True).save(tmp_path / "adapters")
    data = tmp_path / "adapters" / "adapter_model.safetensors"
    data.write_bytes(data.read_bytes()[:1000])
    assert "do not fit" in refusal(tmp_path / "adapters")
    data.unlink()
    assert "have no weights: adapter_model.safetensors" in refusal(tmp_path / "adapters")
    config = tmp_path / "adapters" / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": None}))
    assert "does not say what model" in refusal(tmp_path / "adapters")
    config.write_text("{")
    assert "cannot be read" in refusal(tmp_path / "adapters")


SMALL = """--nodes 2 --local 2 --peers 1 --num-generations 4 --partial-credit true --lora-r 4 --threads 1
    --evaluation.every 2 --eval-questions 2 --eval-samples 1 --quiet""".split()


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(list(map(str, arguments))) == 2
    message = capsys.readouterr().err
    assert message.startswith("shoal: ")
    assert message.count("\n") == 1
    return message


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main(["run", *SMALL, "--rounds", "2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def node(whole: Path) -> Path:
    return whole / "checkpoints" / "round-000002" / "node-1"


@pytest.mark.slow
def test_a_run_trains_adapters_and_resumes(whole: Path, node: Path, tmp_path: Path) -> None:
    assert sum(row["tokens/trained"] for row in read_metrics(whole) if row["round"]) > 0
    assert base_name(node) == "guppy"
    assert not (node / "config.json").exists()
    guppy = load("guppy", CPU.device).model
    adapted = restore_adapters(load_base(node, CPU.device), RANK, node)
    kept = {name.replace(".base_layer", ""): p for name, p in weights(adapted.model).items() if ".lora_" not in name}
    assert_same(kept, weights(guppy), 0)
    assert any(bool(p.any()) for name, p in trained(adapted).items() if ".lora_B." in name)
    stopped = tmp_path / "stopped"
    assert main(["run", *SMALL, "--rounds", "1", "--out", str(stopped)]) == 0
    assert main(["run", "--resume", str(stopped), "--rounds", "2", "--quiet"]) == 0
    assert [r for r in figures(stopped) if r["round"] == 2] == [r for r in figures(whole) if r["round"] == 2]
    again = stopped / "checkpoints" / "round-000002" / "node-1" / "adapter_model.safetensors"
    assert again.read_bytes() == (node / "adapter_model.safetensors").read_bytes()


@pytest.mark.slow
def test_eval_and_merge_read_a_checkpoint(node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--task", "gcd", "--questions", "3", "--samples", "2", "--json"]
    assert main(["eval", str(node), *asked]) == 0
    own = json.loads(capsys.readouterr().out)
    merge(node, tmp_path / "merged")
    assert capsys.readouterr().out.splitlines()[0] == f"{tmp_path / 'merged'}"
    assert main(["eval", str(tmp_path / "merged"), *asked]) == 0
    assert json.loads(capsys.readouterr().out)["all"] == own["all"]


def test_what_cannot_be_merged_is_said_in_one_line(
    node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_lm().save(tmp_path / "full")
    assert "holds no LoRA adapters" in complaint(
        capsys, "export", tmp_path / "full", "--to", tmp_path / "out", "--merge"
    )
    assert "is not empty" in complaint(capsys, "export", node, "--to", tmp_path, "--merge")
    (tmp_path / "file").touch()
    assert "is a file" in complaint(capsys, "export", node, "--to", tmp_path / "file", "--merge")
    assert "cannot write" in complaint(capsys, "export", node, "--to", tmp_path / "file" / "out", "--merge")
    assert not (tmp_path / "out").exists()


def test_wrong_settings_are_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--rounds", "1", "--out", tmp_path / "run"]
    assert "--policy.lora-r -1" in complaint(capsys, "run", *out, "--lora-r", "-1")
    assert not (tmp_path / "run").exists()


def test_without_peft_it_says_what_to_install(
    node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert "pip install 'shoal[lora]'" in complaint(capsys, "run", *SMALL, "--rounds", "1", "--out", tmp_path / "run")
    assert "pip install 'shoal[lora]'" in complaint(capsys, "export", node, "--to", tmp_path / "out", "--merge")
    assert "pip install 'shoal[lora]'" in complaint(capsys, "eval", node)


def test_adapters_on_adapters_load_and_are_trained_further(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    adapt(saved_base(tmp_path / "base"), moved=True).save(first)
    lm = adapt(load(str(first), CPU.device), seed=1, moved=True)
    lm.save(second)
    again = restore_adapters(load_base(second, CPU.device), RANK, second)
    assert_same(weights(again.model), weights(lm.model), 1e-6)
    assert load(str(second), CPU.device).name == str(second)


def test_adapters_that_belong_to_themselves_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    adapt(saved_base(tmp_path / "base")).save(folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(folder)}))
    with pytest.raises(UserError, match="leads back to itself"):
        load(str(folder), CPU.device)
