"""A decoder of one's own: the one in docs/extend/decoder.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tiny import CPU, make_lm, make_question, make_scored, plain_logprobs, weights

from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.policy.decoders.base import Request, Sampled, Sampling, decoder_of
from shoal.policy.decoders.own import OwnDecoder
from shoal.policy.language import LanguagePolicy

PAGE = Path(__file__).parents[3] / "docs/extend/decoder.md"


@pytest.fixture
def engine(tmp_path: Path) -> str:
    """The name of the page's decoder, in a file."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 40
    file = tmp_path / f"decoder_{tmp_path.name.replace('-', '_')}.py"
    file.write_text(code, encoding="utf-8")
    return f"{file}:Generate"


def test_a_policy_learns_with_it(engine: str) -> None:
    policy = LanguagePolicy(make_lm(), Sampling(0.7, 0.9, 6), CPU, decoder=decoder_of(engine))
    learner = GRPOLearner(policy, learning_rate=1e-2)
    texts = ("2 + 2 =", "the quick brown fox")
    questions = [make_question(text) for text in texts]
    for round in range(2):
        groups = policy.generate(questions, 4, seed=round)
        assert groups == policy.generate(questions, 4, seed=round)
        assert all(1 <= len(completion.token_ids or ()) <= 6 for group in groups for completion in group)
        batch = [make_scored(text, group, (0.0, 1.0, 0.0, 1.0)) for text, group in zip(texts, groups, strict=True)]
        before = weights(policy.lm.model)
        learner.update(batch)
        assert any(not torch.equal(weight, before[name]) for name, weight in weights(policy.lm.model).items())


def test_its_log_probabilities_are_the_learner_s(engine: str) -> None:
    policy = LanguagePolicy(make_lm(), Sampling(0.7, 1.0, 6), CPU, decoder=decoder_of(engine))
    for question, group in zip([make_question()], policy.generate([make_question()], 8, seed=0), strict=True):
        prompt = policy.prompt_ids(question)
        for completion in group:
            expected = plain_logprobs(policy.lm.model, prompt, list(completion.token_ids or ()), 0.7).tolist()
            assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_one_whose_log_probabilities_are_others_is_refused() -> None:
    class Wrong(OwnDecoder):
        def decode(self, request: Request) -> list[list[Sampled]]:
            groups = super().decode(request)
            for sampled in (each for group in groups for each in group):
                sampled.logps = [logp - 1 for logp in sampled.logps]
            return groups

    with pytest.raises(
        UserError, match="cannot be decoded here by Wrong: behind a text of one token its log-probabilities come out 1"
    ):
        LanguagePolicy(make_lm(), Sampling(), CPU, decoder=Wrong)


def test_names_of_engines() -> None:
    assert decoder_of("transformers") is OwnDecoder
    with pytest.raises(UserError, match=r"^there is no engine 'transformer'; did you mean 'transformers'\?"):
        decoder_of("transformer")


def test_a_file_names_one_only_with_allow_code(engine: str) -> None:
    settings = {"policy": {"engine": engine}}
    with pytest.raises(UserError, match="add --allow-code"):
        make_config(settings, "my.toml")
    assert make_config(settings, "my.toml", allow_code=True).policy.engine == engine
