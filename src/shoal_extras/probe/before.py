"""What `shoal run` does before it trains on data: it finds out how to ask the model and how many rounds it can do.

prepared = prepare(config, "auto", console)
prepared.config                 # for the run
prepared.ways["quiz"]           # what each way of asking gave
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.text import Text

from shoal.config.policy import is_small
from shoal.config.settings import Config
from shoal.config.tasks import DATA
from shoal.display.text import print_paragraph
from shoal.errors import UserError, nearest
from shoal.runs.data import has_data
from shoal.tasks import Tasks
from shoal.untrusted import printable
from shoal_extras.probe.probe import WAYS, Found, Way, worth

if TYPE_CHECKING:
    from shoal_extras.probe.finding import Finding, Speed

SECONDS: Final = 90.0
"""For asking. With loading the model and a trial of the training it stays within two minutes."""
WANTED: Final = 15 * 60.0
"""Seconds that a run takes by default, at most about."""
SURE: Final = 256
"""Answers, all right or all wrong, that say that nothing can be learned."""
FEWEST: Final = 20
"""Rounds, however slow the machine is."""
LABEL: Final = 15
"""Columns before what is said, as in the lines of what a run chooses."""


@dataclass(frozen=True)
class Prepared:
    """A run's settings with the way of asking, and what was found."""

    config: Config
    ways: Mapping[str, Sequence[Found]] = field(default_factory=dict)
    """Of each task by its label what each way gave; empty where nothing was asked."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """The way that each task is asked in. A task that no way teaches anything has none."""

    @property
    def verdict(self) -> str:
        """Why nothing can be learned and what to do, in two lines, where many answers say so in every way; or ""."""
        found = [one for ways in self.ways.values() for one in ways]
        right, answers = sum(sum(one.right) for one in found), sum(one.answers for one in found)
        if self.chosen or answers < SURE or any(one.live_share for one in found) or right not in (0, answers):
            return ""
        are, do = "wrong", "take easier questions, or a larger model (--model)"
        if right:
            are, do = "right", "take harder questions: the model knows these"
        return f"nothing to learn: all {answers} answers, in {len(found)} ways of asking, are {are}\n  do: {do}"


def prepare(config: Config, ask: str, console: Console) -> Prepared:
    """`config` with the way of asking and the number of rounds, as far as the user leaves these open. `ask`: auto, or
    the name of a way. Ctrl-C raises `KeyboardInterrupt`; nothing is kept then. Raises `UserError`."""
    way = way_of(ask)
    if way and not has_data(config):
        raise UserError(f"--ask {ask} is for data of your own: shoal run FILE")
    if way and is_form_given(config):
        raise UserError(f"--ask {ask} and other settings say how to ask: leave it out, or --examples and --answer")
    model = next(iter(config.local_models), "")
    config = config.model_copy(deep=True)
    if way:
        config.tasks.sources = [way.of(spec) if spec.name == DATA else spec for spec in config.tasks.sources]
    counts = "rounds" not in config.model_fields_set
    finds = finds_out(config, ask)
    own = config.policy.engine == "transformers"  # another one may not give its memory back
    if not model or is_small(model) or not own or not has_data(config) or not (counts or finds):
        return Prepared(config)

    def say(name: str, text: str) -> None:
        print_paragraph(console, Text(f"{name:{LABEL}}{text}", "dim"), LABEL)

    if finds:
        say("asking", f"how {model} is best asked: about 2 min, once for these questions (--ask plain leaves it out)")
    if counts:
        say("time", "about a quarter of an hour in all, by what this machine does in a trial (--rounds N)")
    found = asked(config, model, console, SECONDS if finds else 0.0, keeps=False, as_given=not finds)
    if finds:
        from shoal_extras.probe.finding import asked_so

        config = asked_so(config, found)
        for label, ways in found.ways.items():
            say("asked" if len(found.ways) == 1 else label, said(ways, found.best.get(label), found.known))
    if found.speed:
        config.rounds, line = forecast(config, found.speed)
        say("time", line)
    if not finds:
        return Prepared(config)
    return Prepared(config, found.ways, {label: one.way.name for label, one in found.best.items()})


def way_of(ask: str) -> Way | None:
    """The way of this name; None for `auto`. Raises `UserError`."""
    known = {way.name: way for way in WAYS}
    if ask != "auto" and ask not in known:
        raise UserError(f"--ask {ask}: there is no such way of asking; {nearest(ask, ['auto', *known])}")
    return known.get(ask)


def is_form_given(config: Config) -> bool:
    """Whether the settings say how to ask."""
    own = {"examples", "answer", "system_prompt"}
    named = any(own & spec.model_fields_set for spec in config.tasks.sources)
    return named or bool(own & config.tasks.model_fields_set)


def finds_out(config: Config, ask: str) -> bool:
    """Whether it is open how to ask, and right answers would tell."""
    verified = not config.rewards or any(spec.kind == "verifier" for spec in config.rewards)
    groups = config.policy.num_generations > 1
    return ask == "auto" and has_data(config) and not is_form_given(config) and verified and groups


def asked(
    config: Config, model: str, console: Console, seconds: float, keeps: bool = True, as_given: bool = False
) -> Finding:
    """How `model` is best asked, with the progress shown on `console`. See `finding.find`."""
    from shoal_extras.probe.finding import find  # torch, only now

    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        line = progress.add_task(f"loading {escape(printable(model))}", total=seconds or None)
        rest = "Ctrl-C ends it with what is known" if keeps else "Ctrl-C ends it"

        def on_progress(questions: int, spent: float) -> None:
            counted = f"{questions} question{'s' * (questions != 1)}"
            progress.update(line, completed=spent, description=f"asked {counted} in each way; {rest}")

        return find(config, model, seconds, on_progress, keeps, as_given)


def said(ways: Sequence[Found], best: Found | None, known: bool) -> str:
    """A line on what was found for one task."""
    before = ", as found before" if known else ""
    if not best:
        taken = max(ways, key=worth)
        right, every = (sum(counts) for counts in zip(*((sum(w.right), w.G * len(w.right)) for w in ways), strict=True))
        return (
            f"in {len(ways)} ways, {right} of {every} answers are right; so far no question has right and wrong ones; "
            f"taken: {taken.way.says} (--ask {taken.way.name}){before}"
        )
    shares = {one.way.name: f"{sum(one.right)} of {one.answers}" for one in ways}
    beside = f"; plain: {shares['plain']}" if "plain" in shares and best.way.name != "plain" else ""
    return f"{best.way.says} (--ask {best.way.name}): {shares[best.way.name]} answers right{beside}{before}"


def forecast(config: Config, speed: Speed) -> tuple[int, str]:
    """The rounds: those that the user wants, or that there is time for. And a line on the time that they take."""
    from shoal.runs.choices import choose

    chosen, _ = choose(config)
    nodes = chosen.round.nodes  # they share the cores
    held_out = Tasks(chosen.tasks).held_out(int(chosen.evaluation.questions), chosen.seed)
    measuring = nodes * speed.each * int(chosen.evaluation.samples) * sum(map(len, held_out.values()))
    every = chosen.evaluation.every or chosen.rounds
    round = nodes * (speed.answer + speed.update)
    left = WANTED - SECONDS - speed.load * (nodes + 1) - measuring
    rounds = chosen.rounds
    if "rounds" not in config.model_fields_set:
        rounds = max(FEWEST, min(rounds, int(left / (round + measuring / every))))
        rounds -= rounds % 10 if rounds < chosen.rounds else 0
    measured, counted = 1 + -(-rounds // every), f"{rounds} round{'s' * (rounds != 1)}"
    total = speed.load * nodes + rounds * round + measured * measuring
    return rounds, (
        f"about {max(1, total / 60):.0f} min from here: {counted} of {round:.0f} s, and {measured} times "
        f"{measuring:.0f} s to measure (--rounds N)"
    )
