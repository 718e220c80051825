"""The loss and the weight of docs/extend/loss.md, as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from test_learner import ByHand, make_learner, perturb, record, rollouts
from tiny import assert_same, make_policy, make_scored, plain_logprobs

from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.learn.losses.base import Tokens, sequence_sum
from shoal.rollout import Scored

PAGE = Path(__file__).parents[3] / "docs/extend/loss.md"
LOSS, WEIGHT = "my_losses:Smooth(temperature=0.5)", "my_losses:Fading"
OWN_NLL = 2.0


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def my_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _ = examples()
    (tmp_path / "my_losses.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)


class Smoothly(ByHand):
    """The same by plain autograd, one completion at a time."""

    def loss(self, order: list[Scored], old: list[torch.Tensor]) -> torch.Tensor:
        olds, losses = iter(old), []
        for s in order:
            for completion, A in zip(s.rollout.completions, self.advantages(s), strict=True):
                before, logp = next(olds), self.logps(self.model, s, completion)
                loss = -A * torch.tanh(0.5 * ((logp - before).exp() - 1)) / 0.5
                gap = -before.mean() - OWN_NLL
                losses.append(loss * torch.exp(-gap.clamp(min=0) / 2) if s.from_peer else loss)
        return torch.cat(losses).mean()


def test_lengths_and_ratios_of_whole_completions() -> None:
    logps, old = torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-1.0, -1.0, -2.0])
    tokens = Tokens(logps, old, torch.ones(3), torch.tensor([0, 0, 1]))
    known = {"torch": torch, "tokens": tokens, "sequence_sum": sequence_sum}
    exec(examples()[1], known)
    assert known["length_T"].tolist() == [2, 2, 1]  # type: ignore[attr-defined]
    assert known["ratio_T"].log().tolist() == pytest.approx([-0.5, -0.5, -1])  # type: ignore[attr-defined]


def test_gradients_are_those_of_plain_autograd() -> None:
    batch = [s.as_peer() if "yes or no" in s.question.text else s for s in rollouts()]
    policy = make_policy("gpt2", double=True)
    learner = make_learner(policy, 0.1, True, {"weight": WEIGHT}, loss_type=LOSS, num_iterations=3)
    learner.own_nll = OWN_NLL
    by_hand = Smoothly(policy, learner.config, torch.optim.SGD, 0.1)
    perturb(policy.lm.model, by_hand.model)
    found = record(learner)
    metrics = learner.update(batch, seed=3).metrics
    by_hand.update(batch, seed=3)
    assert len(found) == 3
    for actual, expected in zip(found, by_hand.gradients, strict=True):
        assert_same(actual, expected)
    assert 0 < metrics["peers/weight"] < 1


def test_a_policy_learns_by_it() -> None:
    policy = make_policy()
    learner = make_learner(policy, loss_type=LOSS)
    batch = [make_scored("2 + 2 =", [[5, 9, 1], [7, 1], [8, 1]], [1, 0, 0])]

    def likelihood(ids: list[int]) -> float:
        prompt = policy.lm.tokenizer.encode("2 + 2 =\n")
        return plain_logprobs(learner.model, prompt, ids, 1.0).sum().exp().item()

    before = likelihood([5, 9, 1]), likelihood([7, 1])
    for seed in range(10):
        learner.update(batch, seed)
    assert likelihood([5, 9, 1]) > 2 * before[0]
    assert likelihood([7, 1]) < before[1]


def test_a_file_that_names_it_is_refused() -> None:
    for settings in ({"learner": {"loss_type": LOSS}}, {"peers": {"weight": WEIGHT}}):
        with pytest.raises(UserError, match="names code that would run here"):
            make_config(settings, "one.toml")
        assert make_config(settings, "one.toml", allow_code=True)


def test_a_loss_of_another_shape_is_refused() -> None:
    Path("odd_losses.py").write_text(
        "from my_losses import *\n"
        "class Mean(Smooth):\n    def token_losses(self, tokens): return TokenLosses(tokens.logps_T.mean())\n"
        "class First(Fading):\n    def weights(self, tokens): return tokens.gap_T[:1]\n"
    )
    with pytest.raises(UserError, match="give one each"):
        make_learner(make_policy(), loss_type="odd_losses:Mean").update(rollouts())
    learner = make_learner(make_policy(), peers={"weight": "odd_losses:First"})
    learner.own_nll = OWN_NLL
    with pytest.raises(UserError, match="give one each"):
        learner.update([s.as_peer() for s in rollouts()])
