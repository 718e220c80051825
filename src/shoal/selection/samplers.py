"""Which rollouts a node learns from: of its own the live ones first, of other nodes' as a sampler chooses.

`UniformSampler` is the paper's. `SelectiveSampler` prefers, limits and leaves out as `[sampling]` of the configuration
says; `make_sampler` gives the one that the settings ask for. With both makers take turns (`Turns`), so that nobody has
more places for having sent more. Both look only at what this node measured itself: its own rewards, its own success
rate for each task, and which names it has met.

A rollout of a single completion, as a person or a program gives it, has no other to be compared with: its baseline is
how often this node itself solves the task (`OwnSuccess`).
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.config.selection import SamplingConfig
from shoal.errors import UserError
from shoal.protocols import Sampler
from shoal.rollout import Scored, canonical
from shoal.selection.trust import Trust
from shoal.selection.turns import Turns

NEWCOMER = 16
"""Rollouts after which a node is no newcomer, as in admission."""
SOLVED = 0.999
"""A mean reward above this is one of a group that is right throughout."""
SELDOM = 0.2
"""A task that a node solves less often than this may be learned from others' groups that are right throughout."""
CLIP = 0.05
"""Success rates count as at least this and at most 1 less this, so that a task that was never solved keeps a weight: a
fifth, with learnability 1, of that of a task that is solved half of the time."""
MEMORY = 10
"""A success rate is the plain mean of this many own rollouts, and then a moving one that forgets as fast."""
LEAST = 0.05
"""A single completion whose reward is within this of what was to be expected teaches nothing."""
NAMES = 1024
"""Newcomers that are remembered, and as many of the others: whoever makes up names cannot fill the memory."""
RECENT = 1024
"""Rollouts learned from whose answers are remembered."""
NEW = "newcomers"
"""What newcomers are trusted as, all of them together, or a new name would be a new trust; no digest is it."""
FILE = "sampler.json"


class OwnSuccess:
    """How often this node itself solves each task, by its own rollouts, and what follows from it: what a single
    completion is compared with. Both samplers are one."""

    def __init__(self) -> None:
        self.success: dict[tuple[str, str], tuple[float, int]] = {}
        """For each task and its parameters: how often this node solves it, and from how many rollouts that is known.
        Its own tasks alone, so there are not many."""
        self.turns = Turns()

    def observe(self, own: Sequence[Scored]) -> None:
        """Learns how often this node solves each task from its own rollouts of a round, all of them."""
        for scored in own:
            task = _task(scored)
            p, count = self.success.get(task, (0.0, 0))
            count = min(count + 1, MEMORY)
            self.success[task] = p + (_clip(scored.mean_reward, 0.0) - p) / count, count

    def heed(self, update: Mapping[str, float]) -> None:
        """Is told the metrics of an update."""
        self.turns.heed(update)

    def lesson(self, scored: Scored) -> Scored | None:
        """The rollout as it is to be learned from, if it carries a gradient: one of several completions by their own
        mean, a single one by this node's success rate for its task (A = r - p), once it knows one."""
        if not scored.rewards:
            return None
        if len(scored.rewards) > 1:
            return scored if scored.live else None
        p, count = self.success.get(_task(scored), (0.0, 0))
        if not count or abs(scored.rewards[0] - p) < LEAST:
            return None
        return msgspec.structs.replace(scored, baseline=p)

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self._state()))

    def load(self, folder: Path) -> None:
        file = folder / FILE
        if file.exists():  # a checkpoint of before this was kept has none
            self._restore(json.loads(file.read_text()))

    def _state(self) -> dict[str, Any]:
        success = [[*task, p, count] for task, (p, count) in self.success.items()]
        return {"success": success, "given": self.turns.state()}

    def _restore(self, state: dict[str, Any]) -> None:
        self.success = {(task, config): (p, count) for task, config, p, count in state["success"]}
        self.turns.restore(state.get("given", {}))


class UniformSampler(OwnSuccess):
    """The paper's sampler (arXiv 2509.08721, section 5): rollouts without advantage are dropped, the rest are equal.

    Uniform over makers, and then over the rollouts of each: among makers that send alike every rollout is as likely as
    any other.
    """

    def sample(self, candidates: Sequence[Scored], n: int, seed: int) -> list[Scored]:
        """At most `n` of `candidates`. One of a single completion comes back with a `baseline`."""
        rng = random.Random(seed)
        lessons = [lesson for scored in candidates if (lesson := self.lesson(scored)) is not None]
        considered = [s for s in lessons if s.weight >= 1 or rng.random() < s.weight]
        shuffled = rng.sample(considered, len(considered))
        return self.turns.choose([shuffled], n, rng, candidates)


class SelectiveSampler(OwnSuccess):
    """A weighted draw without replacement from what each maker has in the pool, within quotas.

    A rollout's weight is [p (1 - p)]^learnability, where p is how often this node itself solves the task (sampling for
    learnability, arXiv 2408.15099; for language models arXiv 2502.12272). A task of which it knows nothing counts as
    solved half of the time: worth a look. With trust a maker comes before others in as many updates as it is trusted
    (`Trust`), and last in the rest. Rollouts of makers whom admission distrusts are considered with the probability
    `Scored.weight`, as by the uniform sampler.
    """

    def __init__(self, config: SamplingConfig) -> None:
        super().__init__()
        self.config = config
        self._newcomers: dict[str, int] = {}
        """How many rollouts of each have come. Those that went unnoticed for longest are forgotten first."""
        self._known: dict[str, None] = {}
        self._present: set[str] = set()
        """What was in the pool last time, so that each rollout counts once."""
        self._recent: dict[str, None] = {}
        """The answers learned from of late, as hashes."""
        self._trust = Trust() if config.trust else None
        self._successes = Counter[str]()
        """How many each node has in the last update."""

    def heed(self, update: Mapping[str, float]) -> None:
        super().heed(update)
        if self._trust:
            names = {node: {_digest(node), self._remembered(node)} for node in self._successes}
            self._trust.heed(update, self._successes, names)

    def sample(self, candidates: Sequence[Scored], n: int, seed: int) -> list[Scored]:
        """At most `n` of `candidates`. Single completions and those right throughout come back with a `baseline`."""
        rng = random.Random(seed)
        self._meet(candidates)
        bounded = self._trust is None and self.config.newcomer_share == 1  # either gives some makers' places to others
        chosen = self.turns.choose(self._shuffled(candidates, rng), n, rng, candidates, self._quotas(n), bounded)
        for scored in chosen if self.config.drop_duplicates else ():
            _remember(self._recent, _answers(scored), RECENT)
        self._successes.clear()
        for scored in chosen:
            expected = scored.mean_reward if scored.baseline is None else scored.baseline
            self._successes[scored.rollout.node] += sum(reward > expected for reward in scored.rewards)
        return chosen

    def _shuffled(self, candidates: Sequence[Scored], rng: random.Random) -> tuple[list[Scored], list[Scored]]:
        """What can be learned from, of makers who come first in this update and of the rest, each in the order of a
        weighted draw without replacement: by the logarithm of the weight plus Gumbel noise, which is the draw of
        Efraimidis and Spirakis (2006) without numbers too small."""
        keyed = []
        first = self._first({scored.rollout.node for scored in candidates}, rng)
        for scored in candidates:
            usable = self._usable(scored)
            if usable is None or (scored.weight < 1 and rng.random() >= scored.weight):
                continue
            noise = -math.log(max(rng.expovariate(1.0), 1e-300))
            keyed.append((scored.rollout.node in first, self._log_weight(scored) + noise, usable))
        keyed.sort(key=lambda each: each[1], reverse=True)
        return [usable for early, _, usable in keyed if early], [usable for early, _, usable in keyed if not early]

    def _first(self, nodes: set[str], rng: random.Random) -> set[str]:
        """Those who come before the others in this update: by one draw for each name, however much it has sent."""
        if self._trust is None:
            return nodes
        names = {node: self._remembered(node) for node in nodes}
        first = {name for name in sorted({*names.values()}) if rng.random() < self._trust.of(name)}
        return {node for node, name in names.items() if name in first}

    def _remembered(self, node: str) -> str:
        """What a node is trusted as."""
        return NEW if self._newcomer(node) else _digest(node)

    def _newcomer(self, node: str) -> bool:
        return self.config.newcomer_share < 1 and _digest(node) not in self._known

    def _usable(self, scored: Scored) -> Scored | None:
        """The rollout as it is to be learned from, if there is something to learn."""
        lesson = self.lesson(scored)
        if lesson is not None or not scored.rewards:
            return lesson
        p, count = self.success.get(_task(scored), (1.0, 0))
        if self.config.keep_solved and count and p < SELDOM and scored.mean_reward > SOLVED:
            return msgspec.structs.replace(scored, baseline=p)
        return None

    def _log_weight(self, scored: Scored) -> float:
        if not self.config.learnability:
            return 0.0
        p = _clip(self.success.get(_task(scored), (0.5, 0))[0], CLIP)
        return self.config.learnability * math.log(p * (1 - p))

    def _quotas(self, n: int) -> Callable[[Scored], bool]:
        """What says whether a rollout is within the quotas of an update of `n` and no duplicate, and counts it."""
        config = self.config
        taken = Counter[tuple[str, str]]()
        most = {
            "peer": config.max_per_peer or n,
            "question": config.max_per_question or n,
            "newcomers": max(1, math.floor(config.newcomer_share * n + 1e-9)),
            "answers": 1 if config.drop_duplicates else n,
        }

        def permitted(scored: Scored) -> bool:
            marks = [("peer", _digest(scored.rollout.node)), ("question", _question(scored))]
            if self._newcomer(scored.rollout.node):
                marks.append(("newcomers", ""))
            if config.drop_duplicates:
                marks.append(("answers", _answers(scored)))
                if marks[-1][1] in self._recent:
                    return False
            if any(taken[mark] >= most[mark[0]] for mark in marks):
                return False
            taken.update(marks)
            return True

        return permitted

    def _meet(self, candidates: Sequence[Scored]) -> None:
        """Counts what each node has sent, once."""
        if self.config.newcomer_share >= 1:
            return
        present = {_digest(s.rollout.node, s.rollout.round, s.rollout.slot, s.question.id): s for s in candidates}
        for scored in (scored for key, scored in present.items() if key not in self._present):
            name = _digest(scored.rollout.node)
            count = self._newcomers.pop(name, 0) + 1
            if name in self._known or count >= NEWCOMER:
                _remember(self._known, name, NAMES)
            else:
                self._newcomers[name] = count
                _forget(self._newcomers, NAMES)
        self._present = set(present)

    def _state(self) -> dict[str, Any]:
        return super()._state() | {
            "newcomers": list(self._newcomers.items()),
            "known": list(self._known),
            "present": sorted(self._present),
            "recent": list(self._recent),
            "trust": self._trust.state() if self._trust else [],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._newcomers = dict(state["newcomers"])
        self._known = dict.fromkeys(state["known"])
        self._present = set(state["present"])
        self._recent = dict.fromkeys(state["recent"])
        if self._trust:
            self._trust.restore(state["trust"])


def live_first(own: Sequence[Scored], n: int) -> list[Scored]:
    """At most `n` of `own`, in order of slot: live ones rather than others, earlier ones rather than later ones, as in
    dynamic sampling (DAPO, arXiv 2503.14476)."""
    chosen = sorted(own, key=lambda scored: not scored.live)[:n]
    return sorted(chosen, key=lambda scored: scored.rollout.slot)


def make_sampler(config: SamplingConfig, gate: float) -> Sampler:
    """The sampler that the settings ask for: the paper's, as they stand. Raises `UserError` for trust without a `gate`
    (`external.gate`) to go by."""
    if config.trust and not gate:
        raise UserError("sampling.trust goes by what --external.gate leaves out: give one, as 1.5")
    plain = SamplingConfig(adapt=config.adapt, fill=config.fill)  # which are none of the sampler's
    return UniformSampler() if config == plain else SelectiveSampler(config)


def _task(scored: Scored) -> tuple[str, str]:
    return scored.question.id.task, scored.question.id.config


def _question(scored: Scored) -> str:
    """The question's text: another seed may give the same."""
    return _digest(canonical(scored.question.text))


def _answers(scored: Scored) -> str:
    """The question and its answers, in whatever order and white space."""
    answers = ((canonical(c.text), b"".join(part.data for part in c.parts)) for c in scored.rollout.completions)
    return _digest(_question(scored), *sorted(answers))


def _digest(*parts: object) -> str:
    """A hash of anything, text that cannot be encoded included. Names are kept as these, since a name may be long."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()


def _clip(p: float, margin: float) -> float:
    return min(max(p, margin), 1 - margin)


def _remember(names: dict[str, None], name: str, most: int) -> None:
    """Puts `name` last, and forgets the first if there are too many."""
    names.pop(name, None)
    names[name] = None
    _forget(names, most)


def _forget(names: dict[str, None] | dict[str, int], most: int) -> None:
    while len(names) > most:
        del names[next(iter(names))]
