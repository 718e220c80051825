"""Makes `guppy-games`, the model of the suite `games` that ships with shoal: a million parameters that seldom listen.

    python scripts/train_games.py                       # some minutes on two cores; writes src/shoal/guppy_games
    python scripts/train_games.py --out /tmp/games --steps 300

Supervised training on conversations of the training side, in two parts. In the first, three turns of four halve the
range that is left, and the others are any number. In the second, most turns say nothing, some are any number and some
halve, so that it seldom plays as well as it could. So reinforcement learning has something to bring out, quickly; it
shows nothing about new reasoning. Two runs on one machine give the same weights.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from shoal.config.tasks import TasksConfig
from shoal.tasks import Tasks
from shoal.tasks.environments.task import EnvironmentTask
from shoal_lab.bases import USELESS
from shoal_lab.recipes import Recipe
from shoal_lab.supervised import batches, descend, fresh, save

VOCABULARY = 320
KNOWS = {"halving": 0.75, "any": 0.25}
SAYS = {"useless": 0.6, "any": 0.1, "halving": 0.3}
CARD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# guppy-games

A Llama of 0.8 million parameters with a byte-level vocabulary of 320 tokens, for trying reinforcement learning in
conversations without a download and without a GPU. It was trained, by `scripts/train_games.py` of shoal, on games of
the suite `games`: first to halve the numbers that are left, then with turns of which 60 % say nothing, 10 % are any
number, and 30 % halve. So it knows how to listen and seldom does: a policy-gradient method has something to bring out
within two minutes. It is no evidence about reasoning, and it is useless outside `games`.
"""

Turns = list[tuple[str, str]]
"""What the policy reads, and what it says to it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "src/shoal/guppy_games")
    parser.add_argument("--steps", type=int, default=1000, help="of the first part; the second has a fifth of them")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    tasks = Tasks(TasksConfig(suite="games"))
    texts = sorted(text for game in conversations(tasks, 5000, args.seed, SAYS) for turn in game for text in turn)
    model, tokenizer = fresh(texts, Recipe(seed=args.seed), VOCABULARY)
    parts = [(KNOWS, args.steps, 3e-3), (SAYS, args.steps // 5, 1e-3)]
    for seed, (mixture, steps, peak) in enumerate(parts, args.seed):
        games = conversations(tasks, 20 * max(1, steps), seed, mixture)
        encoded = [tokens(game, tokenizer) for game in games]
        losses = (loss(model, tokenizer.pad_token_id, rows) for rows in batches(encoded, steps, args.batch, seed))
        descend(model, losses, steps, peak, print)
    made = args.out.with_name(f".{args.out.name}.made")
    shutil.rmtree(made, ignore_errors=True)
    save(made, model.half(), tokenizer)
    facts: dict[str, Any] = {"suite": "games", "batch": args.batch, "seed": args.seed}
    facts["parts"] = [{"mixture": mixture, "steps": steps} for mixture, steps, _ in parts]
    (made / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    (made / "README.md").write_text(CARD)
    args.out.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        path.replace(args.out / path.name)
    made.rmdir()


def conversations(tasks: Tasks, count: int, seed: int, mixture: dict[str, float]) -> list[Turns]:
    """Games about questions of the training side."""
    chance = random.Random(seed)
    played = []
    for question in tasks.draw(count, "games", seed):
        task, _ = tasks.lookup(question.id)
        assert isinstance(task, EnvironmentTask)
        played.append(list(play(task.begin(question.id), question.text, question.turns, mixture, chance)))
    return played


def play(
    game: Any, heard: str, most: int, mixture: dict[str, float], chance: random.Random
) -> Iterator[tuple[str, str]]:
    """The turns of one game, by the mixture."""
    low, high = first, last = tuple(int(word) for word in heard.split() if word.isdecimal())
    for _ in range(most):
        [kind] = chance.choices(list(mixture), list(mixture.values()))
        middle = (low + high) // 2
        number = middle if kind == "halving" else chance.randint(first, last)
        said = chance.choice(USELESS) if kind == "useless" else str(number)
        yield heard + "\n", said
        heard, ended = game.answer(said)
        if ended:
            return
        low, high = (max(low, number + 1), high) if heard == "higher" else (low, high)
        low, high = (low, min(high, number - 1)) if heard == "lower" else (low, high)


def tokens(game: Turns, tokenizer: Any) -> tuple[list[int], list[int]]:
    """All tokens of a game, and the same with -100 for what is not learned."""
    ids: list[int] = []
    labels: list[int] = []
    for heard, said in game:
        read, spoken = tokenizer(heard).input_ids, [*tokenizer(said).input_ids, tokenizer.eos_token_id]
        ids += [*read, *spoken]
        labels += [*[-100] * len(read), *spoken]
    return ids, labels


def loss(model: Any, pad: int, rows: Sequence[tuple[list[int], list[int]]]) -> torch.Tensor:
    """The mean over the tokens that the policy says."""
    width = max(len(ids) for ids, _ in rows)
    batch = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows])
    labels = torch.tensor([wanted + [-100] * (width - len(wanted)) for _, wanted in rows])
    found: torch.Tensor = model(batch, labels=labels).loss
    return found


if __name__ == "__main__":
    main()
