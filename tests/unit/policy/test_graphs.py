"""The decode step of static shapes: what a graph repeats is what the plain step computes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_decode import PROMPTS, run, scripted  # noqa: F401  (a fixture)
from tiny import ARCHITECTURES, make_model, plain_logprobs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shoal.policy import decode, graphs
from shoal.policy.decode import sample
from shoal.policy.device import Placement
from shoal.policy.draw import Sampling
from shoal.policy.graphs import Run

ENDS = range(0, 300, 9)
"""Stop tokens by which some completions end early."""


class Tape(TorchDispatchMode):
    """A graph on the CPU: repeats operations on the very tensors that were there when they were captured, and refuses
    what would wait for the device or read memory of the host."""

    REFUSED = tuple(
        f"aten.{name}." for name in ("item", "_local_scalar_dense", "is_nonzero", "nonzero", "equal", "lift_fresh")
    )

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func).startswith(self.REFUSED):
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        out = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, out))
        return out

    def replay(self) -> None:
        for func, args, kwargs, out in self.operations:
            again = func(*args, **kwargs)
            for new, tensor in zip(tree_leaves(again), tree_leaves(out), strict=True):
                if isinstance(tensor, torch.Tensor) and new.data_ptr() != tensor.data_ptr():
                    tensor.copy_(new)


class TapeRecorder:
    def __init__(self, _device: torch.device) -> None:
        self.warmed = self.captured = self.replayed = 0

    def warm(self, run: Run) -> None:
        self.warmed += 1
        run()

    def capture(self, run: Run) -> Run:
        with Tape() as tape:
            run()
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            tape.replay()

        return replay


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[TapeRecorder]:
    """Takes tapes for graphs; gives those that were asked for."""
    made: list[TapeRecorder] = []

    def make(device: torch.device) -> TapeRecorder:
        made.append(TapeRecorder(device))
        return made[-1]

    monkeypatch.setattr(graphs, "recorder_on", make)
    return made


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("columns", [2, 64])
def test_graphs_give_the_tokens_and_log_probabilities_of_the_plain_step(
    architecture: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "LEAST_COLUMNS", columns)
    model = make_model(architecture)
    plain = [run(model, stop_ids=ENDS, seed=seed, max_completion_length=14) for seed in range(3)]
    made: list[TapeRecorder] = []
    monkeypatch.setattr(graphs, "recorder_on", lambda device: made.append(TapeRecorder(device)) or made[-1])
    for seed, groups in enumerate(plain):  # from the second on graphs are there already
        static = run(model, stop_ids=ENDS, seed=seed, max_completion_length=14)
        for prompt, group, expected in zip(PROMPTS, static, groups, strict=True):
            assert [c.token_ids for c in group] == [c.token_ids for c in expected]
            assert [c.stopped for c in group] == [c.stopped for c in expected]
            for c, e in zip(group, expected, strict=True):
                assert c.logps == pytest.approx(e.logps, abs=1e-5)
                assert c.logps == pytest.approx(plain_logprobs(model, prompt, c.token_ids).tolist(), abs=1e-5)
    (recorder,) = made
    assert recorder.captured > 1
    assert recorder.replayed > 2 * recorder.captured


def test_a_kept_graph_is_right_after_an_update_and_after_weights_have_moved(recorders: list[TapeRecorder]) -> None:
    model = make_model()
    run(model)
    addresses = [p.data_ptr() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.tensor([[5, 6, 7]])).logits.logsumexp(-1).sum().backward()
    optimizer.step()
    assert [p.data_ptr() for p in model.parameters()] == addresses
    check(model)
    assert len(recorders) == 1
    assert recorders[0].replayed > 8
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.1
    check(model)
    assert len(recorders) == 2


def check(model: Any, **options: Any) -> None:
    for prompt, group in zip(PROMPTS, run(model, **options), strict=True):
        for c in group:
            assert c.logps == pytest.approx(plain_logprobs(model, prompt, c.token_ids).tolist(), abs=1e-5)


def test_graphs_are_kept_for_shapes_that_fit(recorders: list[TapeRecorder]) -> None:
    model = make_model()
    for seed in range(2):
        run(model, [[5] * (9 + 40 * seed), [7]], seed=seed)  # within the room for the first prompt
    assert len(recorders) == 1
    run(model, [[5] * 70, [7]])
    run(model, [[5] * 70, [7], [8]])
    run(model, [[5] * 70, [7], [8]], num_generations=2)
    run(model, [[5] * 70, [7], [8]], num_generations=2, max_completion_length=7)
    assert len(recorders) == 5


def test_what_is_kept_ends_with_its_model(recorders: list[TapeRecorder]) -> None:
    model = make_model()
    run(model)
    recorders[0].capture = None  # type: ignore[assignment, method-assign]
    graphs._kept[model].replays.clear()  # a tape holds tensors of the model; a graph holds addresses
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_what_cannot_be_captured_is_said_once_and_goes_on(recorders: list[TapeRecorder]) -> None:
    model = make_model()
    expected = run(model, stop_ids=ENDS)
    graphs._kept.pop(model)
    layer = model.model.layers[0]

    def wait(_module: Any, _inputs: Any, hidden: torch.Tensor) -> None:
        hidden.sum().item()

    layer.register_forward_hook(wait)
    with pytest.warns(UserWarning, match="without CUDA graphs, slower: operation not permitted"):
        assert run(model, stop_ids=ENDS) == expected
    again = [[c.token_ids for c in group] for group in run(model, stop_ids=ENDS)]  # no warning: it would be an error
    assert again == [[c.token_ids for c in group] for group in expected]
    assert len(recorders) == 2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_copies_in_bfloat16_give_what_autocast_gives(
    architecture: str,
    monkeypatch: pytest.MonkeyPatch,
    scripted: list[int],  # noqa: F811
) -> None:
    """Weights are rounded either way. The first product's keys are kept rounded, which autocast does later."""
    model, bfloat16 = make_model(architecture), Placement(torch.device("cpu"), torch.bfloat16)
    logits: dict[str, list[torch.Tensor]] = {"plain": [], "static": []}
    kind = "plain"
    choose = decode.draw

    def keep(logits_BV: torch.Tensor, *rest: Any) -> Any:
        logits[kind].append(logits_BV.clone())
        return choose(logits_BV, *rest)

    monkeypatch.setattr(decode, "draw", keep)
    for kind in ("plain", "static"):  # noqa: B007
        scripted.clear()
        sample(model, PROMPTS, 3, Sampling(max_completion_length=8), frozenset(), bfloat16, range(4))
        monkeypatch.setattr(graphs, "recorder_on", TapeRecorder)
    assert graphs._kept[model].copies[0].dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 and p.requires_grad for p in model.parameters())
    for plain, static in zip(logits["plain"], logits["static"], strict=True):
        torch.testing.assert_close(static, plain, rtol=0, atol=0.1)


def test_copies_follow_the_weights(recorders: list[TapeRecorder]) -> None:
    model, bfloat16 = make_model(), Placement(torch.device("cpu"), torch.bfloat16)
    settings = Sampling(max_completion_length=8)
    sample(model, PROMPTS, 3, settings, frozenset(), bfloat16, range(4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    kept = sample(model, PROMPTS, 3, settings, frozenset(), bfloat16, range(4))
    graphs._kept.pop(model)
    fresh = sample(model, PROMPTS, 3, settings, frozenset(), bfloat16, range(4))
    assert kept == fresh
    assert len(recorders) == 2


def test_without_cuda_nothing_is_kept() -> None:
    model = make_model()
    run(model)
    assert model not in graphs._kept


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_captured_graphs_give_the_log_probabilities_of_separate_passes(architecture: str) -> None:
    """In float32, where the plain forward pass is the judge; twice, the second time with graphs alone."""
    torch.backends.cuda.matmul.allow_tf32 = False
    placement = Placement(torch.device("cuda"), torch.float32)
    model = make_model(architecture).cuda()
    for _ in range(2):
        groups = sample(model, PROMPTS, 3, Sampling(max_completion_length=14), frozenset(ENDS), placement, range(4))
        reference = make_model(architecture)
        for prompt, group in zip(PROMPTS, groups, strict=True):
            for c in group:
                assert c.logps == pytest.approx(plain_logprobs(reference, prompt, c.token_ids).tolist(), abs=1e-4)
    assert graphs._kept[model].replays


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_refused_capture_leaves_a_model_that_decodes() -> None:
    placement = Placement(torch.device("cuda"), torch.bfloat16)
    model = make_model().cuda()
    wait: Callable[..., None] = lambda _m, _i, hidden: print(hidden.sum().item(), end="")  # noqa: E731
    model.model.layers[0].register_forward_hook(wait)
    stream = torch.cuda.current_stream()
    with pytest.warns(UserWarning, match="without CUDA graphs"):
        sample(model, PROMPTS, 3, Sampling(max_completion_length=8), frozenset(), placement, range(4))
    assert torch.cuda.current_stream() == stream
    groups = sample(model, PROMPTS, 3, Sampling(max_completion_length=8), frozenset(), placement, range(4))
    assert all(len(c.token_ids) == 8 for group in groups for c in group)
