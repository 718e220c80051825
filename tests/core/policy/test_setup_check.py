"""The check before a model's first answer notices what would be wrong, and is made once for each model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import CPU, WINDOW, make_lm, make_policy

from shoal.errors import UserError
from shoal.learn import logprobs
from shoal.learn.batch import MicroBatch
from shoal.learn.logprobs import check_architecture, takes_packed
from shoal.policy import verdicts
from shoal.policy.decoders import base
from shoal.policy.decoders.base import check_decoder
from shoal.policy.decoders.bucket import Bucket
from shoal.policy.decoders.generate import GenerateDecoder, fitting_decoder
from shoal.policy.decoders.own import OwnDecoder
from shoal.policy.trial import edge_tokens, telling_length


def decode(architecture: str) -> None:
    lm = make_lm(architecture)
    check_decoder(OwnDecoder(lm, CPU), lm, CPU)


def without_window(self: Bucket, window: int | None, dtype: torch.dtype, before: Any = Bucket._bias_B11N) -> Any:
    return before(self, None, dtype)


def one_further(self: Bucket, before: Any = Bucket.begin_step) -> torch.Tensor:
    return torch.as_tensor(before(self) + 1)


@pytest.mark.parametrize(
    ("architecture", "method", "wrong", "told"),
    [
        ("gemma3", "_bias_B11N", without_window, r"behind a text of \d+ tokens"),
        ("llama", "_bias_B11N", lambda *_: None, "behind a text"),
        ("llama", "begin_step", one_further, "nats off"),
    ],
)
def test_a_window_a_mask_or_a_position_that_is_wrong_in_decoding_is_noticed(
    architecture: str, method: str, wrong: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode(architecture)
    monkeypatch.setattr(Bucket, method, wrong)
    with pytest.raises(UserError, match=told):
        decode(architecture)


def test_a_window_or_a_mask_that_is_wrong_in_an_update_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, right = make_lm("gemma3"), MicroBatch.mask_RSN
    check_architecture(lm)
    monkeypatch.setattr(MicroBatch, "mask_RSN", lambda self, window=None: right(self))
    with pytest.raises(UserError, match="nats off"):
        check_architecture(lm)
    monkeypatch.setattr(
        MicroBatch, "mask_RSN", lambda self, window=None: right(self, window) | (right(self, window) < 2)
    )
    with pytest.raises(UserError, match="nats off"):
        check_architecture(lm)


@pytest.mark.parametrize(
    "scores", [lambda x: torch.nn.functional.pad(x[..., :-1], (0, 1), value=-9.0), lambda x: 2 * x]
)
def test_a_highest_token_or_a_scale_that_is_wrong_is_noticed(scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, right = make_lm(), logprobs.output_logits
    monkeypatch.setattr(logprobs, "output_logits", lambda model, hidden: scores(right(model, hidden)))
    with pytest.raises(UserError, match="nats off"):
        check_architecture(lm)


def test_texts_are_as_long_as_shows_a_window_or_scaled_positions_and_no_longer() -> None:
    assert telling_length(make_lm("gemma3").model) > WINDOW
    assert telling_length(make_lm("llama").model) == 24
    scaled = make_lm("llama").model
    scaled.config.rope_parameters = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}
    assert telling_length(scaled) == min(512, scaled.config.max_position_embeddings - 24)
    lm = make_lm()
    assert edge_tokens(lm)[-1] == len(lm.model.get_output_embeddings().weight) - 1


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The passes of checks."""
    made: list[str] = []
    right = base.logprob_errors

    def counted(*args: Any) -> list[float]:
        made.append("one")
        return right(*args)

    monkeypatch.setattr(base, "logprob_errors", counted)
    monkeypatch.setattr(logprobs, "logprob_errors", counted)
    monkeypatch.setattr(verdicts, "cache_folder", lambda kind: tmp_path / kind)
    return made


def test_a_model_is_checked_once_and_again_if_its_weights_are_others(checks: list[str], tmp_path: Path) -> None:
    assert takes_packed(make_policy())
    assert len(checks) == 2
    assert takes_packed(make_policy())
    assert len(checks) == 2
    other = make_lm()
    with torch.no_grad():
        for weight in other.model.parameters():
            weight += 1e-3
    fitting_decoder(other, CPU)
    assert len(checks) == 3
    for kept in (tmp_path / "trials").iterdir():
        kept.write_text("damaged")
    assert takes_packed(make_policy())
    assert len(checks) == 5


def test_what_is_slower_stays_slower_and_is_said_again(
    checks: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from shoal.errors import say_once

    monkeypatch.setattr(Bucket, "begin_step", one_further)
    lines = []
    for _ in range(2):
        say_once.cache_clear()
        assert isinstance(fitting_decoder(make_lm(), CPU), GenerateDecoder)
        lines.append(capsys.readouterr().err)
    assert lines[0] == lines[1]
    assert "which is slower" in lines[0]
    assert len(checks) == 2  # shoal's own and transformers', the first time
