"""A model on the tasks of lm-eval: small local files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.errors import UserError
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal_extras.harnesses.command import Asked

SUMS = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/sums.jsonl}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
{rest}
metadata: {{version: 1.0}}
"""
GENERATED = """
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean}]
"""
CHOSEN = 'doc_to_choice: ["5", "6"]\nmetric_list: [{metric: acc, aggregation: mean}]'

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def policy() -> LanguagePolicy:
    return LanguagePolicy("guppy", Sampling(1.0, 1.0, 16))


def answers(policy: LanguagePolicy) -> list[bool]:
    """Whether the policy's likeliest answers to the four sums are right, by shoal's own decoding."""
    from shoal.rollout import Message, Question, QuestionId

    before, policy.sampling = policy.sampling, Sampling(0.0, 1.0, 8)
    asked = [Question(QuestionId("q", "1", "", 0, n), (Message("user", f"Calculate {n} + 3."),)) for n in range(2, 6)]
    groups = policy.generate(asked, 1, 0)
    policy.sampling = before
    return [group[0].text.strip() == str(n + 3) for n, group in enumerate(groups, start=2)]


@pytest.mark.parametrize(
    ("kind", "rest", "metric"), [("generate_until", GENERATED, "exact_match"), ("multiple_choice", CHOSEN, "acc")]
)
def test_lm_eval_on_a_task_in_yaml(
    tmp_path: Path, policy: LanguagePolicy, kind: str, rest: str, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lm_eval")
    from shoal_extras.harnesses.lm_eval import measure

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = [
        {"question": f"Calculate {n} + 3.", "answer": str(n + 3) if kind == "generate_until" else n % 2}
        for n in range(2, 6)
    ]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "sums.yaml").write_text(SUMS.format(folder=tmp_path, kind=kind, rest=rest))
    asked = Asked(["sums"], include_path=tmp_path)
    figures = measure(policy, asked)
    figure = next(figure for figure in figures if figure.metric == metric)
    assert (figure.task, figure.samples) == ("sums", 4)
    if kind == "generate_until":
        assert figure.value == sum(answers(policy)) / 4  # as shoal asks and decodes
    assert figure.stderr is not None
    assert figure.stderr == pytest.approx((figure.value * (1 - figure.value) / 3) ** 0.5)
    assert next(f.samples for f in measure(policy, Asked(["sums"], tmp_path, limit=2)) if f.metric == metric) == 2
    with pytest.raises(UserError, match="lm-eval has no task 'products'"):
        measure(policy, Asked(["products"], tmp_path))
