"""A swarm whose answers are pictures: two different flow models share clean pictures and learn by DiffusionNFT.

    python examples/flow_swarm.py                       # one seed of each arm, some three minutes
    python examples/flow_swarm.py --first 11 --seeds 5  # the study; it goes on where it was

A question names a form and a place ("a ring at the top left", as two numbers). An answer is a picture of 8 x 8 grey
points, as bytes: no weights, no noise, no likelihoods travel. Whoever gets a picture verifies it by its points, as its
own ones, and learns from it by the forward process alone (DiffusionNFT, arXiv 2509.16117), so that the models need
nothing in common. As in swarm sampling, a node learns from I of its own groups and J of the other's.

What is left out: the network, a pool over several rounds, classifier-free guidance.
"""

from __future__ import annotations

import argparse
import json
import math
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import Tensor, nn

# Suffixes: B pictures, P points of a picture (64), Q questions.
SIDE, POINTS = 8, 64
FORMS, PLACES = 5, 4
CONDITIONS = FORMS * PLACES
HELD_OUT = (1, 6, 11, 12)
"""Pairs of form and place that are never asked in training."""
GROUP, QUESTIONS, ROUNDS, EVERY = 8, 8, 300, 25
WIDTHS = (160, 288)
"""Of the two models: they share neither size nor start."""
RATE, PASSES, KEEP = 3e-4, 4, 0.95
"""Learning rate, passes over a batch, and how much of the old model stays in each round."""
STEPS = 12
"""Of decoding."""
OVERLAP = 0.7
"""Of a picture's bright points with the wanted ones, by the union: what is right."""
ARMS = {"own only 8/0": (8, 0), "4/4": (4, 4), "foreign only 0/8": (0, 8)}
T975 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t at 97.5 %, by the number of seeds."""


def wanted(condition: int) -> Tensor:
    """The points, 0 or 1, of a form (square, ring, cross, bars upright or lying) in a quarter of the picture."""
    form, place = divmod(condition, PLACES)
    row, column = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
    edge = [(each == 0) | (each == 3) for each in (row, column)]
    forms = (row >= 0, edge[0] | edge[1], ~edge[0] | ~edge[1], column % 2 == 0, row % 2 == 0)
    points = torch.zeros(SIDE, SIDE)
    top, left = 4 * (place // 2), 4 * (place % 2)
    points[top : top + 4, left : left + 4] = forms[form]
    return points.flatten()


WANTED_QP = torch.stack([wanted(condition) for condition in range(CONDITIONS)])
TRAINING = torch.tensor([condition for condition in range(CONDITIONS) if condition not in HELD_OUT])


def loss(new_BP: Tensor, old_BP: Tensor, velocity_BP: Tensor, right_B1: Tensor) -> Tensor:
    """DiffusionNFT's, with beta = 1: of a right picture the new velocity comes near its own, of a wrong one the new
    velocity's mirror image at the old one does. `right_B1`: how right each picture is, from 0 to 1."""
    towards_BP, away_BP = (new_BP - velocity_BP) ** 2, (2 * old_BP - new_BP - velocity_BP) ** 2
    return (right_B1 * towards_BP + (1 - right_B1) * away_BP).mean()


def verify(pictures_BP: Tensor, conditions_B: Tensor) -> Tensor:
    """1 for a picture whose bright points are the wanted ones, otherwise 0. `pictures_BP`: bytes."""
    bright_BP, right_BP = pictures_BP > 127, WANTED_QP[conditions_B] > 0
    overlap_B = (bright_BP & right_BP).sum(1) / (bright_BP | right_BP).sum(1)
    return (overlap_B >= OVERLAP).float()


class Flow(nn.Module):
    """Velocity at a noisy picture, its time in [0, 1] and its condition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.form, self.place = nn.Embedding(FORMS, 24), nn.Embedding(PLACES, 24)
        sizes = [POINTS + 48 + 16, width, width, width]
        layers = [layer for one, other in pairwise(sizes) for layer in (nn.Linear(one, other), nn.SiLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(width, POINTS))

    def forward(self, noisy_BP: Tensor, time_B: Tensor, condition_B: Tensor) -> Tensor:
        angles = time_B[:, None] * math.pi * torch.arange(1, 9)
        said = (self.form(condition_B // PLACES), self.place(condition_B % PLACES), angles.sin(), angles.cos())
        return self.layers(torch.cat([noisy_BP, *said], 1))


@torch.no_grad()
def draw(model: Flow, conditions_B: Tensor) -> Tensor:
    """Pictures as bytes: what may be shared."""
    points_BP = torch.randn(len(conditions_B), POINTS)
    for step in range(STEPS):
        time_B = torch.full((len(conditions_B),), 1 - step / STEPS)
        points_BP = points_BP - model(points_BP, time_B, conditions_B) / STEPS
    return ((points_BP.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)


def noised(clean_BP: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Noisy pictures, their times and the velocities towards noise (rectified flow)."""
    time_B, noise_BP = torch.rand(len(clean_BP)), torch.randn_like(clean_BP)
    return (1 - time_B)[:, None] * clean_BP + time_B[:, None] * noise_BP, time_B, noise_BP - clean_BP


def pretrained(width: int, seed: int, steps: int = 1500, wrong: float = 0.7) -> Flow:
    """A model that has seen pictures of all conditions, `wrong` of them under another one's name."""
    torch.manual_seed(seed)
    model = Flow(width)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(steps):
        condition_B = torch.randint(CONDITIONS, (128,))
        clean_BP = WANTED_QP[condition_B] * 2 - 1 + 0.1 * torch.randn(128, POINTS)
        called_B = torch.where(torch.rand(128) < wrong, torch.randint(CONDITIONS, (128,)), condition_B)
        noisy_BP, time_B, velocity_BP = noised(clean_BP)
        optimizer.zero_grad()
        ((model(noisy_BP, time_B, called_B) - velocity_BP) ** 2).mean().backward()
        optimizer.step()
    return model


@dataclass
class Group:
    """A rollout: a question with the pictures that one node gave it. It travels."""

    condition: int
    pictures_BP: Tensor


class Node:
    """A model, the old one that it answers with, and its optimizer."""

    def __init__(self, model: Flow) -> None:
        self.model, self.old = model, deepcopy(model)
        self.optimizer = torch.optim.Adam(model.parameters(), RATE)

    def answer(self) -> list[Group]:
        conditions = TRAINING[torch.randint(len(TRAINING), (QUESTIONS,))].tolist()
        return [Group(condition, draw(self.old, torch.full((GROUP,), condition))) for condition in conditions]

    def learn(self, batch: list[Group]) -> None:
        """One round's passes over a batch."""
        condition_B = torch.cat([torch.full((GROUP,), group.condition) for group in batch])
        pictures_BP = torch.cat([group.pictures_BP for group in batch])
        reward = verify(pictures_BP, condition_B).view(-1, GROUP)
        advantage = reward - reward.mean(1, keepdim=True)  # in (-1, 1), so nothing is clipped and each group's sum is 0
        right_B1 = (0.5 + 0.5 * advantage).reshape(-1, 1)
        clean_BP = pictures_BP.float() / 127.5 - 1
        for _ in range(PASSES):
            noisy_BP, time_B, velocity_BP = noised(clean_BP)
            with torch.no_grad():
                old_BP = self.old(noisy_BP, time_B, condition_B)
            new_BP = self.model(noisy_BP, time_B, condition_B)
            self.optimizer.zero_grad()
            loss(new_BP, old_BP, velocity_BP, right_B1).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.old.parameters(), self.model.parameters(), strict=True):
                old.lerp_(new, 1 - KEEP)

    def pass_at_1(self, conditions: list[int], each: int = 40) -> float:
        condition_B = torch.tensor(conditions).repeat_interleave(each)
        return float(verify(draw(self.old, condition_B), condition_B).mean())


def run(arm: str, seed: int, rounds: int) -> dict[str, list[list[float]]]:
    """For each node its pass@1 over the rounds, of training and of held-out conditions."""
    own, foreign = ARMS[arm]
    nodes = [Node(pretrained(width, 100 * seed + at)) for at, width in enumerate(WIDTHS)]
    torch.manual_seed(seed)
    curves: dict[str, list[list[float]]] = {"asked": [[], []], "held out": [[], []]}
    for round in range(rounds + 1):
        if round % EVERY == 0:
            for at, node in enumerate(nodes):
                curves["asked"][at].append(node.pass_at_1(TRAINING.tolist()))
                curves["held out"][at].append(node.pass_at_1(list(HELD_OUT)))
        made = [node.answer() for node in nodes]
        for at, node in enumerate(nodes):
            node.learn(made[at][:own] + made[1 - at][:foreign])
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each arm (default 1)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first seed (default 1)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each run (default {ROUNDS})")
    parser.add_argument("--out", type=Path, default=Path("flow"), help="where figures.json is kept (default flow)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "figures.json"
    figures = json.loads(file.read_text()) if file.exists() else {}
    for seed in range(args.first, args.first + args.seeds):
        for arm in ARMS:
            name = f"{arm}, seed {seed}, {args.rounds} rounds"
            if name not in figures:
                figures[name] = run(arm, seed, args.rounds)
                file.write_text(json.dumps(figures, indent=1))
            ends = [
                f"{kind}: " + ", ".join(f"{c[0]:.2f} to {c[-1]:.2f}" for c in found)
                for kind, found in figures[name].items()
            ]
            print(f"{name}: {'; '.join(ends)}", flush=True)
    seeds = range(args.first, args.first + args.seeds)
    print(table({arm: [figures[f"{arm}, seed {seed}, {args.rounds} rounds"] for seed in seeds] for arm in ARMS}))


def table(found: dict[str, list[dict[str, list[list[float]]]]]) -> str:
    """Means over seeds at the end, and what an arm has above the first, paired by seed, with Student's interval."""
    lines = [
        "| arm | pass@1, small | large | held out, small | large | mean against own only |",
        "|---|---|---|---|---|---|",
    ]
    first = next(iter(found.values()))
    for arm, runs in found.items():
        ends = [fmean(one[kind][at][-1] for one in runs) for kind in ("asked", "held out") for at in (0, 1)]
        gains = [_mean(one) - _mean(base) for one, base in zip(runs, first, strict=True)]
        gain = "" if runs is first else f"{fmean(gains):+.3f}"
        if gain and len(gains) in T975:
            width = T975[len(gains)] * stdev(gains) / math.sqrt(len(gains))
            gain += f" [{fmean(gains) - width:+.3f}, {fmean(gains) + width:+.3f}]"
        lines.append(f"| {arm} | {' | '.join(f'{end:.3f}' for end in ends)} | {gain} |")
    return "\n".join(lines)


def _mean(curves: dict[str, list[list[float]]]) -> float:
    """The area under both nodes' curves."""
    return fmean(fmean(curve) for curve in curves["asked"])


if __name__ == "__main__":
    main()
