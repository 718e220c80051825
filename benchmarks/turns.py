"""A round of conversations with an environment, beside a step of TRL's GRPOTrainer with `environment_factory`.

    python turns.py WORKLOAD OUT.json [--repeats N]

guppy-games plays the game of `halving.py`. In TRL's trainer a chat template and a response template make its turns
calls of a tool. It plays with rules of 150 tokens before each game, about as long as a chat template's description of a
tool, and without.

Equal are the model and its weights, the prompts, the tokens of turns and of observations, the turns of a conversation
(four), rewards, advantages, the gradient (`beside_trl.py` asserts all of them on a batch of TRL's), threads, and the
precision. Each draws its own conversations in a timed step. What cannot be equal: TRL bounds the tokens of a
conversation and shoal those of a turn (neither bound is reached), and TRL has its games in the trainer's process, shoal
in a guarded one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from beside_trl import Shoal, Timed, lively, settings
from datasets import Dataset
from halving import TURNS, Halving, HalvingTool
from transformers import AutoTokenizer

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.rollout import seed_of

LONGEST = 64
WORKS = {"turns, 150 tokens of rules": True, "turns, no rules": False}
CHAT = r"""
{%- for m in messages %}
    {%- if m.tool_calls %}
        {%- set call = m.tool_calls[0].function %}
        {%- if call.name == "guess" %}{{ call.arguments.number }}
        {%- else %}{{ call.name }}{{ call.arguments }}
        {%- endif %}
        {{- "<eos>" }}
    {%- elif m.role == "assistant" %}{{ m.content + "<eos>" }}
    {%- else %}{{ m.content + "\n" }}
    {%- endif %}
{%- endfor %}"""
"""Each text in a line of its own, as guppy-games reads them. TRL tries another tool than `guess`, too."""
TURN = {
    "defaults": {"role": "assistant"},
    "start_anchor": "\n",
    "fields": {
        "tool_calls": {
            "open_pattern": "(?s)(?=.*<eos>)",
            "close": "<eos>",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "guess", "arguments": {"number": "{content}"}}},
        },
        "content": {"content": "text"},
    },
}
"""Every turn that has ended is a guess."""


def reward(completions: list[Any], environments: list[HalvingTool], **_row: Any) -> list[float]:
    """The game's own. TRL holds no turn behind the last call, so it gets that one here."""
    for messages, environment in zip(completions, environments, strict=True):
        environment.guess(**messages[-1]["tool_calls"][0]["function"]["arguments"])
    return lively([environment._score() for environment in environments])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    args.out.write_text(json.dumps({name: beside(rules, args.repeats) for name, rules in WORKS.items()}))


def beside(rules: bool, repeats: int) -> dict[str, Any]:
    torch.set_num_threads(1)  # two have nothing to divide in a model of a million parameters
    torch.manual_seed(0)
    module = Path(__file__).with_name("halving.py")
    config = TasksConfig(sources=[TaskSpec(name=f"{module}:Halving", parameters={"rules": rules})], partial_credit=True)
    ours = Shoal("guppy-games", config, LONGEST)
    seeds = [seed_of(Halving.name, question.id.seed, question.id.index) for question in ours.questions]
    rows = [{"prompt": [{"role": "user", "content": ""}], "number": seed, "rules": rules} for seed in seeds]
    folder = str(files("shoal") / "guppy_games")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template, tokenizer.response_template = CHAT, TURN
    with tempfile.TemporaryDirectory() as scratch:
        trainer = Timed(
            ours,
            model=folder,
            processing_class=tokenizer,
            reward_funcs=reward,
            environment_factory=HalvingTool,
            train_dataset=Dataset.from_list(rows),
            args=settings(Path(scratch), repeats + 1, LONGEST, max_tool_calling_iterations=TURNS - 1),
        )
        trainer.train()
    ours.verifier.close()
    return trainer.figures()


if __name__ == "__main__":
    main()
