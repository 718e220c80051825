"""What the commands do, as functions: `run`, `join` and `evaluate`; and `make_node`, for a loop of your own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.config.load import config_from_keywords, resumed_config
from shoal.config.names import from_keywords
from shoal.config.own_code import refuse_import
from shoal.config.settings import ENDLESS, Config
from shoal.errors import UserError

if TYPE_CHECKING:
    import pandas

    from shoal.evaluation.pass_at_k import Evaluation
    from shoal.identity.keys import Identity
    from shoal.node import Node
    from shoal.protocols import Grader, Learner, Policy, Selection, Swarm, TaskSource


@dataclass(frozen=True)
class RunResult:
    """A run that has ended: its folder, and what is in it.

        result = shoal.run(rounds=20)
        result.metrics[["round", "node", "reward/local"]]
        result.models["node-1"]         # a Hugging Face model folder

    The tables are read from the folder when they are asked for.
    """

    folder: Path
    round: int
    """Rounds done."""
    finished: bool
    """Whether these were all rounds. Otherwise `shoal.run(resume=result.folder)` goes on."""
    warnings: tuple[str, ...] = ()
    """What was wrong, such as a scorer that failed or rounds with nothing to learn from, in plain words."""

    @property
    def metrics(self) -> pandas.DataFrame:
        """A row for each node and round; docs/reference/run-folder.md says what the columns are."""
        import pandas

        from shoal.runs.folder import read_metrics

        return pandas.DataFrame(read_metrics(self.folder))

    @property
    def rollouts(self) -> pandas.DataFrame:
        """A row for each completion of the run's own nodes."""
        from shoal.runs.tables import ROLLOUTS, read_table

        return read_table(self.folder, ROLLOUTS)

    @property
    def learned(self) -> pandas.DataFrame:
        """A row for each rollout that a node learned from: who learned from whom."""
        from shoal.runs.tables import LEARNED, read_table

        return read_table(self.folder, LEARNED)

    @property
    def transcripts(self) -> pandas.DataFrame:
        """Before and after: a row for each answer to the same few held-out questions, in each evaluation."""
        from shoal.runs.tables import TRANSCRIPTS, read_table

        return read_table(self.folder, TRANSCRIPTS)

    @property
    def models(self) -> dict[str, Path]:
        """Each node's model in the last checkpoint: a folder that transformers loads. Empty without checkpoints."""
        from shoal.runs.folder import models

        return models(self.folder)


def run(
    config: Config | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: bool = False,
    stop: threading.Event | None = None,
    allow_code: bool = False,
    **settings: Any,
) -> RunResult:
    """Runs a swarm of language models in this process, as `shoal run` does, and returns when it has ended.

        result = shoal.run(model="guppy", nodes=2, rounds=20, learning_rate=2e-4)
        result = shoal.run(task="own_task:Larger", evaluation={"every": 5})
        result = shoal.run(data="questions.jsonl", rewards=["my_rewards.py:score"])
        result = shoal.run(data=[{"prompt": "2 + 2 =", "answer": "4"}, ...], rounds=20)

    `config` or `settings`: the settings by the names of their flags (`rounds`, `learning_rate`), or sections as
    dictionaries (`evaluation={"every": 5}`). `data`: a path, a name on the Hub, a list of rows or a `datasets.Dataset`.
    `rewards`: functions as TRL takes them, their names, or entries of `[[rewards]]`. `out`: the run's folder (default:
    runs/DATE-TIME). `resume`: the folder of a run to go on with; its settings are in it. `progress`: show the same
    table as the command. `stop`: once it is set, the run ends after the current round, with a checkpoint. `allow_code`:
    run the code (module:attribute) that the resumed folder names. Raises `UserError` with one line that says what is
    wrong.
    """
    return _execute(config, out, resume, progress, stop, allow_code, None, settings)


def join(
    config: Config | None = None,
    *,
    connect: str | list[str] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: bool = False,
    stop: threading.Event | None = None,
    allow_code: bool = False,
    **settings: Any,
) -> RunResult:
    """Runs one node of a swarm of many machines, as `shoal join` does, and returns when it has ended.

        result = shoal.join(connect="relay.example.org:7447", network={"name": "lagoon"}, rounds=100)

    The node's identity is this machine's (`shoal id`). Without `rounds` it goes on until `stop` is set. All else as in
    `run`.
    """
    from shoal.identity.keys import Identity, identity_path

    if connect is not None:
        addresses = [connect] if isinstance(connect, str) else connect
        if config is None:
            settings["network"] = {**settings.get("network", {}), "connect": addresses}
        else:
            config = config.model_copy(deep=True)
            config.network.connect = addresses
    if config is None and resume is None:
        settings = {"nodes": 1, "rounds": ENDLESS, **settings}
    identity = Identity.load_or_create(identity_path())
    return _execute(config, out, resume, progress, stop, allow_code, identity, settings)


def evaluate(model: str | Path, config: Config | None = None, **settings: Any) -> Evaluation:
    """Asks a model held-out questions, as `shoal eval` does.

        found = shoal.evaluate("guppy", suite="pond", samples=4)
        found.pass_at(1)                # Estimate(value=0.02, low=..., high=...)
        found.pass_at(4, "chain_sum")

    `model`: a name on the Hub, a model folder, a GGUF file, an endpoint or "guppy". Raises `UserError`.
    """
    from shoal.evaluation.pass_at_k import evaluate as ask
    from shoal.rollout import seed_of
    from shoal.runs.choices import choose
    from shoal.runs.data import check_data
    from shoal.runs.models import build_policy
    from shoal.sandbox.verifier import Verifier as SandboxVerifier
    from shoal.tasks import Tasks as DrawnTasks
    from shoal.tasks.data.spec import keep_data

    if config is None:
        plain = {"samples": "eval_samples", "questions": "eval_questions"}  # as `shoal eval` calls them
        settings = keep_data(settings)
        config = config_from_keywords({**{plain.get(k, k): v for k, v in settings.items()}, "model": str(model)})
    elif settings:
        raise UserError("give a Config or settings, not both")
    check_data(config, trains=False)
    config, _ = choose(config)
    questions = DrawnTasks(config.tasks).held_out(int(config.evaluation.questions), config.seed)
    policy = build_policy(config, str(model))
    with SandboxVerifier(config.tasks) as verifier:
        samples = int(config.evaluation.samples)
        return ask(policy, verifier, questions, samples, seed_of(config.seed, "evaluate"))


def make_node(
    name: str,
    model: str | Policy,
    tasks: TaskSource,
    verifier: Grader,
    swarm: Swarm,
    *,
    learner: Learner | None = None,
    selection: Selection | None = None,
    I: int = 4,
    J: int = 4,
    G: int = 8,
    seed: int = 0,
    max_completion_length: int = 16,
) -> Node:
    """A node with shoal's own parts where none is given, for a loop that you write yourself.

        node = shoal.make_node("ada", "guppy", tasks, verifier, swarm.join("ada"))
        node.act()
        result = node.learn()

    `model`: what `shoal.run` takes, or a policy. A `LanguagePolicy` is trained by shoal's learner unless there is
    another `learner`; any other policy without one only answers and shares. `max_completion_length`: in tokens, if
    `model` is a name.
    """
    from shoal.learn.learner import GRPOLearner
    from shoal.node import Node
    from shoal.policy.language import LanguagePolicy
    from shoal.rewards.scorer import Scorer
    from shoal.sandbox.replay import attach_environments
    from shoal.selection.pool import Pool
    from shoal.selection.selection import FairSelection

    policy: Policy = (
        LanguagePolicy(model, max_completion_length=max_completion_length) if isinstance(model, str) else model
    )
    if learner is None and isinstance(policy, LanguagePolicy):
        learner = GRPOLearner(policy)
    attach_environments(policy, verifier)
    scorer = Scorer(tasks, verifier)
    selection = selection or FairSelection()
    return Node(name, seed, tasks, scorer, policy, learner, swarm, selection, Pool(), I, J, G)


def _execute(
    config: Config | None,
    out: str | Path | None,
    resume: str | Path | None,
    progress: bool,
    stop: threading.Event | None,
    allow_code: bool,
    identity: Identity | None,
    settings: dict[str, Any],
) -> RunResult:
    from rich.console import Console

    from shoal.display import make_display
    from shoal.runs.session import execute, ready
    from shoal.runs.watcher import Watcher
    from shoal.tasks.data.spec import keep_data

    refuse_import()
    settings = keep_data(settings)
    if sum(bool(given) for given in (config, settings, resume and not settings)) > 1:
        raise UserError("give a Config, settings or a run to resume, not two of them")
    if resume and out:
        raise UserError("a resumed run goes on in its own folder: leave out `out`")
    if resume:
        config = resumed_config(Path(resume), from_keywords(settings), allow_code, network=identity is not None)
    elif config is None:
        config = config_from_keywords(settings)
    ready(config, joins=identity is not None)
    out, resume = (None if folder is None else Path(folder) for folder in (out, resume))
    watch = partial(make_display, Console(), config.rounds) if progress else lambda names, rows: Watcher()
    outcome = execute(config, out, resume, identity, watch, stop)
    return RunResult(outcome.folder, outcome.round, outcome.finished, outcome.warnings)
