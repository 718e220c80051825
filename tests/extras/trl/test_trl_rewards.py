"""Reward functions give a trainer in a swarm what they give the same trainer alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import numpy as np
import pandas
import torch
import trl_rewards as own
from datasets import Dataset
from grpo import G, make_trainer
from tiny import make_model, make_tokenizer

from shoal.errors import UserError
from shoal.transports.memory import MemorySwarm
from shoal_extras.trl import TRLNode

DATA = [{"question": f"Say {letter}.", "answer": letter * (1 + at % 3)} for at, letter in enumerate("abcdefghijklmnop")]
ANSWERS = {row["question"]: row["answer"] for row in DATA}
Function = Callable[..., Any]


def in_a_swarm(folder: Path, functions: Sequence[Function], weights: Sequence[float] | None) -> tuple[Any, Any]:
    """The tokens and rewards of one batch in a `TRLNode`, and TRL's table of it."""
    seen: list[dict[str, Any]] = []
    more = {"reward_weights": list(weights)} if weights else {}
    with TRLNode(MemorySwarm(), data=DATA, rewards=list(functions), **more) as node:

        def rollout_func(prompts: list[Any], trainer: Any) -> dict[str, Any]:
            seen.append(node.rollout_func(prompts, trainer))
            return seen[-1]

        hooks = node.hooks | {"rollout_func": rollout_func}
        make_trainer(node, folder, hooks=hooks, max_steps=1, log_completions=True).train()
    return seen[0], pandas.read_parquet(folder / "completions" / "completions_00001.parquet")


def alone(folder: Path, functions: Sequence[Function], weights: Sequence[float] | None, batch: dict[str, Any]) -> Any:
    """TRL's table of the same answers, where the trainer has the functions itself."""
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = make_tokenizer(chat=True)
    tokens = {name: batch[name] for name in ("prompt_ids", "completion_ids")}
    columns = {"question": batch["shoal_question"], "answer": [ANSWERS[asked] for asked in batch["shoal_question"]]}
    args = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        max_steps=1,
        num_generations=G,
        per_device_train_batch_size=4 * G,
        max_completion_length=6,
        logging_steps=1,
        log_completions=True,
        reward_weights=list(weights) if weights else None,
    )
    GRPOTrainer(
        make_model(vocab_size=len(tokenizer)),
        args=args,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": "q"}] * 64),
        reward_funcs=list(functions),
        rollout_func=lambda prompts, trainer: {"logprobs": None, **tokens, **columns},
    ).train()
    return pandas.read_parquet(folder / "completions" / "completions_00001.parquet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("functions", "weights"),
    [
        ([own.wide], None),
        ([own.negative], None),
        ([own.huge], None),
        ([own.by_column], None),
        ([own.wide, own.negative], [1.0, 0.25]),
        ([own.wide, own.sometimes], [0.5, 2.0]),
        ([own.wide, own.sometimes_nan], None),
        ([own.wide, own.never], None),
        ([own.never], None),
    ],
    ids=lambda each: "-".join(getattr(one, "__name__", str(one)) for one in each) if each else "",
)
def test_rewards_and_advantages_are_those_of_trl(
    tmp_path: Path, functions: list[Function], weights: list[float] | None
) -> None:
    torch.manual_seed(0)
    batch, swarm = in_a_swarm(tmp_path / "swarm", functions, weights)
    plain = alone(tmp_path / "alone", functions, weights, batch)
    columns = np.array([plain[function.__name__].astype(float) for function in functions])
    expected = np.nansum(columns * np.array(weights or [1.0] * len(functions))[:, None], axis=0)
    assert batch["shoal_reward"] == pytest.approx(expected, rel=1e-5)
    assert list(swarm["advantage"]) == pytest.approx(list(plain["advantage"]), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("functions", [[own.sometimes], [own.sometimes, own.sometimes_nan], [own.sometimes, own.never]])
def test_what_no_function_scores_is_learned_from_as_in_trl(tmp_path: Path, functions: list[Function]) -> None:
    """TRL counts such a completion neither in the mean of its group nor among those that learn."""
    torch.manual_seed(0)
    batch, swarm = in_a_swarm(tmp_path / "swarm", functions, None)
    plain = alone(tmp_path / "alone", functions, None, batch)
    none = np.isnan([plain[one.__name__].astype(float) for one in functions]).all(axis=0)
    assert 0 < none.sum() < len(none)
    assert list(swarm["advantage"]) == pytest.approx(list(plain["advantage"]), abs=1e-4)
    assert not np.asarray(plain["advantage"])[none].any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "said"),
    [(own.one_short, "15 values for 16"), (own.broken, "KeyError"), (own.texts, "str")],
    ids=["one_short", "broken", "texts"],
)
def test_errors_end_both(tmp_path: Path, function: Function, said: str) -> None:
    """Where TRL raises, a trainer in a swarm ends too, in one line that says why."""
    batch, _ = in_a_swarm(tmp_path / "swarm", [own.wide], None)
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever TRL, torch and the function raise)
        alone(tmp_path / "alone", [function], None, batch)
    with pytest.raises(UserError, match=said):
        in_a_swarm(tmp_path / "again", [function], None)
