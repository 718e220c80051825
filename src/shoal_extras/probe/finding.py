"""What was found about how to ask a model, kept for the next time, and how fast this machine trains it.

    found = find(config, "smollm2", seconds=90, on_progress=print)
    found.ways["quiz"][0].pass_at_1, found.speed, found.known
    config = asked_so(config, found.best)            # the run's settings with the best way of each task

It is kept by a hash of the model, the data, the settings and the versions (`$XDG_CACHE_HOME/shoal/asking`). What an
endpoint answered is not kept: another model may be behind it tomorrow.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Final

import huggingface_hub
import msgspec
import xxhash

from shoal import __version__
from shoal.config.caches import cache_folder
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.fetch import resolve
from shoal.runs.choices import choose, choose_length
from shoal.runs.disk import write_atomically
from shoal.runs.machine import usable_cores
from shoal.tasks import Tasks
from shoal.tasks.draw import labels
from shoal.tasks.suites import specs_of
from shoal_extras.probe.probe import ENOUGH, GIVEN, WAYS, Found, given_way, probe, recommend, worth

LONGEST: Final = 48
"""Tokens of an answer while asking, at least, unless the user says otherwise."""
ANSWERS: Final = 4
"""To each question while asking: more questions tell more than more answers."""
VERSION: Final = 2
"""Of what is kept, and of how it is found."""
READ: Final = 2**23
"""Bytes of a model that are hashed at once."""


class Speed(msgspec.Struct, frozen=True):
    """Seconds that a run takes for its parts, measured here."""

    load: float
    answer: float
    """One node's answers of a round."""
    update: float
    each: float
    """One answer to a held-out question."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """How a model is best asked."""

    ways: dict[str, list[Found]]
    """Of each task what was found in each way."""
    length: int
    """The longest answer in tokens that was allowed."""
    speed: Speed | None
    """None for a policy that does not learn."""
    known: bool = False
    """Whether it was found before."""

    @property
    def best(self) -> dict[str, Found]:
        """The best way of each task that can teach something."""
        return recommend(self.ways)


class _Way(msgspec.Struct, frozen=True):
    """What is kept of a `Found`."""

    way: str
    G: int
    right: list[int]
    live: list[bool]
    in_form: int
    lengths: list[int]
    truncated: int


class _Kept(msgspec.Struct, frozen=True):
    """What is kept of a finding."""

    ways: dict[str, list[_Way]]
    length: int
    speed: Speed | None


def find(
    config: Config,
    model: str,
    seconds: float,
    on_progress: Callable[[int, float], None] = lambda questions, spent: None,
    keeps: bool = True,
    as_given: bool = False,
) -> Finding:
    """How `model` is best asked the tasks of `config`, from what was found before, or by asking for some `seconds`.
    Ctrl-C ends it with what is known if it `keeps` that. `as_given`: in the way of `config` alone, for the speed.
    Raises `UserError`."""
    tried = choose(config)[0] if as_given else _tried(config)
    if known := _read(_path(tried, model, seconds), tried):
        return known
    from shoal.runs.models import build_policy  # torch, only now
    from shoal_extras.doctor.forecast import trial_policy

    begun = time.monotonic()
    learns = model in config.local_models and config.policy.num_generations > 1
    policy = trial_policy(tried, model) if learns else build_policy(tried, model)
    loaded = time.monotonic() - begun
    ways = probe(
        policy,
        tried.tasks,
        min(ANSWERS, tried.policy.num_generations),
        seconds,
        tried.seed,
        on_progress,
        keeps,
        as_given,
    )
    found = Finding(ways, int(tried.policy.max_completion_length), None)
    if learns:
        speed = measure(tried if as_given else asked_so(config, found), policy, loaded)
        found = dataclasses.replace(found, speed=speed)
    del policy
    gc.collect()  # the run loads its own
    sure = as_given or found.best or max(len(one.right) for ways in found.ways.values() for one in ways) >= ENOUGH
    if sure and (path := _path(tried, model, seconds)):  # a model of the Hub has its version only now
        _write(path, found)
    return found


def asked_so(config: Config, found: Finding) -> Config:
    """`config` with each task asked in the best way that was found, and answers as long as nearly all of these are."""
    config = config.model_copy(deep=True)
    specs = specs_of(config.tasks)
    best = {label: max(ways, key=worth) for label, ways in found.ways.items()}
    config.tasks.sources = [one.way.of(spec) for spec, one in zip(specs, best.values(), strict=True)]
    config.tasks.examples = config.tasks.answer = "task"
    if config.policy.max_completion_length == "auto":
        config.policy.max_completion_length = needed_length(found.length, list(best.values()), config)
    return config


def needed_length(most: int, chosen: Sequence[Found], config: Config) -> int:
    """The longest completion, in tokens: that of nearly all answers, with room for the right ones; at most `most`."""
    lengths = sorted(length for one in chosen for length in one.lengths)
    if len(lengths) < 2:
        return most
    usual = 8 * (int(quantiles(lengths, n=20)[-1]) // 8 + 1)
    tasks = config.tasks.model_copy(update={"sources": [one.spec for one in chosen]})
    examples = all(one.spec.examples for one in chosen)
    return min(most, max(usual, choose_length(tasks)[0] if examples else 0))


def measure(config: Config, policy: object, loaded: float) -> Speed:
    """How fast a node answers and learns. It changes the policy's weights."""
    from shoal.learn.learner import GRPOLearner
    from shoal.policy.language import LanguagePolicy
    from shoal_extras.doctor.forecast import half_right

    assert isinstance(policy, LanguagePolicy)
    config, _ = choose(config)
    tokens = int(config.policy.max_completion_length)
    policy.sampling = dataclasses.replace(policy.sampling, max_completion_length=tokens)
    local, generations = max(1, config.round.local), config.policy.num_generations
    questions = [one for one in Tasks(config.tasks).draw(local, config.seed, "speed", 0) if one.prompt]
    start = time.monotonic()
    groups = policy.generate(questions, generations, config.seed)
    answer = time.monotonic() - start
    learner = GRPOLearner(policy, config.learner, config.peers)
    learner.update([half_right(one, tuple(group)) for one, group in zip(questions, groups, strict=True)])
    return Speed(loaded, answer, time.monotonic() - start - answer, answer / max(1, len(questions) * generations))


def _tried(config: Config) -> Config:
    """The settings while asking."""
    tried, _ = choose(config)
    if config.policy.max_completion_length == "auto":
        tried.policy.max_completion_length = max(LONGEST, int(tried.policy.max_completion_length))
    return tried


def _path(config: Config, model: str, seconds: float) -> Path | None:
    """The file of a finding; None where none is kept."""
    known = None if is_endpoint(model) else _model_hash(model)
    if known is None:
        return None
    tasks = Tasks(config.tasks)
    versions = [__version__, VERSION, ANSWERS, LONGEST, [str(way) for way in WAYS]]
    versions += [importlib.metadata.version(name) for name in ("torch", "transformers")]
    settings = config.model_dump(mode="json", include={"seed", "policy", "learner", "peers", "round"})
    settings["tasks"] = config.tasks.model_dump(mode="json", exclude={"sources"})
    specs = [spec.model_dump(mode="json", exclude={"parameters"}) for spec in tasks.specs]
    about = [known, tasks.identities, specs, settings, versions, seconds, usable_cores()]
    name = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()
    with suppress(UserError):  # no home
        return cache_folder("asking") / f"{name}.json"
    return None


def _model_hash(model: str) -> str | None:
    """A hash of the model's files, or of its version on the Hub; None as long as it is nowhere here."""
    place = Path(resolve(model))
    if model in ("guppy", "guppy-games", "guppy-eye"):
        return f"{model} {__version__}"
    if not place.exists():
        kept = huggingface_hub.try_to_load_from_cache(model, "config.json")
        return Path(kept).parent.name if isinstance(kept, str) else None
    files = [place] if place.is_file() else sorted(path for path in place.iterdir() if path.is_file())
    whole = xxhash.xxh3_128()
    for path in files:
        whole.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while piece := file.read(READ):
                whole.update(piece)
    return whole.hexdigest()


def _write(path: Path, found: Finding) -> None:
    ways = {
        label: [_Way(one.way.name, one.G, one.right, one.live, one.in_form, one.lengths, one.truncated) for one in ways]
        for label, ways in found.ways.items()
    }
    with suppress(OSError, UserError):  # a full disk: it is asked again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(_Kept(ways, found.length, found.speed)))


def _read(path: Path | None, config: Config) -> Finding | None:
    """What was found before; None if nothing was, or if it is damaged."""
    if path is None:
        return None
    by_name = {way.name: way for way in WAYS}
    with suppress(OSError, msgspec.DecodeError, KeyError):
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
        tasks = Tasks(config.tasks)
        specs = dict(zip(labels([task.name for task in tasks.tasks]), tasks.specs, strict=True))
        ways: dict[str, list[Found]] = {label: [] for label in specs}
        for label, spec in specs.items():
            for one in kept.ways[label]:
                way = given_way(spec) if one.way == GIVEN else by_name[one.way]
                read = {name: getattr(one, name) for name in one.__struct_fields__ if name != "way"}
                ways[label].append(Found(way.of(spec), way, **read))
        return Finding(ways, kept.length, kept.speed, known=True)
    return None
