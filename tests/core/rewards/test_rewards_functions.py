"""Reward functions as people write them for TRL, and some that misbehave, for test_rewards_function.py."""

from __future__ import annotations

import asyncio
import os
import re
import time

import numpy


def format_reward_func(completions, **kwargs):  # type: ignore[no-untyped-def]
    """From TRL's documentation of GRPOTrainer: conversational, the columns not used."""
    pattern = r"^<think>.*?</think><answer>.*?</answer>$"
    completion_contents = [completion[0]["content"] for completion in completions]
    matches = [re.match(pattern, content) for content in completion_contents]
    return [1.0 if match else 0.0 for match in matches]


def ground_truth_func(completions, ground_truth, **kwargs):  # type: ignore[no-untyped-def]
    """After TRL's documentation: standard format, against a column."""
    return [1.0 if c.strip() == gt else 0.0 for c, gt in zip(completions, ground_truth, strict=True)]


def sees(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, **columns):  # type: ignore[no-untyped-def]
    """1 for each completion that comes with everything TRL gives."""
    log_metric("seen", 1.0)
    log_extra("column", ["x"] * len(prompts))
    assert len(prompts) == len(completions) == len(completion_ids)
    assert all(isinstance(values, list) and len(values) == len(prompts) for values in columns.values())
    assert prompts[0][-1]["role"] == "user"
    assert completions[0][0]["role"] == "assistant"
    assert columns["question"][0] == prompts[0][-1]["content"]
    assert {"task", "answer", "metadata"} <= columns.keys()
    return [1.0] * len(prompts)


async def patient(completions, **kwargs):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0)
    return [len(c) / 10 for c in completions]


def between(completions, **kwargs):  # type: ignore[no-untyped-def]
    """From -1 to 1 by the number that is the completion."""
    return [float(c) for c in completions]


def typed(completions, **kwargs):  # type: ignore[no-untyped-def]
    """1 for one word and 0 for more, of the type that the word says."""
    kinds = {
        "int": lambda right: [int(one) for one in right],
        "bool": list,
        "float32": lambda right: [numpy.float32(one) for one in right],
        "array": lambda right: numpy.array(right, dtype=float),
        "generator": lambda right: (float(one) for one in right),
        "tuple": lambda right: tuple(map(float, right)),
    }
    return kinds[completions[0].split()[0]]([" " not in c for c in completions])


def few(completions):  # type: ignore[no-untyped-def]
    """Takes nothing else."""
    return [1.0 for _ in completions]


def naughty(completions, **kwargs):  # type: ignore[no-untyped-def]
    """Does what a completion of the form "verb argument" asks for; else 1."""
    return [value for c in completions for value in _obey(*c.partition(" ")[::2])]


def _obey(verb: str, argument: str) -> list[float | None]:
    match verb:
        case "loop":
            while True:
                pass
        case "sleep":
            time.sleep(float(argument))
        case "raise":
            raise RuntimeError(argument)
        case "exit":
            os._exit(3)
        case "nan":
            return [float("nan")]
        case "infinite":
            return [float("-inf")]
        case "1e39":
            return [1e39]
        case "text":
            return ["0.5"]  # type: ignore[list-item]
        case "none":
            return [None]
        case "two":
            return [1.0, 1.0]
        case "nothing":
            return []
        case "touch":
            os.system(f"touch {argument}")
        case "write":
            with open(argument, "w") as file:
                file.write("x")
        case "swallow":
            try:
                os.system(f"touch {argument}")
            except Exception:
                return [1.0]
        case "eval":
            return [float(eval(argument))]
        case "allocate":
            hoard = []
            while True:
                hoard.append(bytes(2**26))
    return [1.0]
