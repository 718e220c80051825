"""All that a node has while its trainer trains: tasks, verifier, rewards, a place in the swarm, and the trainer's model
as a policy, with which shoal's decoder answers. Close it."""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from msgspec.structs import replace
from transformers.utils.import_utils import is_peft_available

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity, identity_path
from shoal.identity.lock import only_node
from shoal.learn.advantages import advantages
from shoal.membership.connection import SwarmConnection
from shoal.membership.settings import public_name
from shoal.node import Node
from shoal.parallel.rank_zero import RankZeroSwarm, RankZeroVerifier
from shoal.parallel.ranks import Ranks
from shoal.policy.decoders.base import Sampling
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, language_model
from shoal.policy.products import FastLinear, use_fast_products
from shoal.policy.reading import is_too_much
from shoal.protocols import Grader, Swarm, UpdateResult
from shoal.rewards import Combined, Filled, RewardVerifier, rewards_of
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Question, Scored
from shoal.runs.build import make_selection, shortens
from shoal.runs.diagnosis import FailedScoring
from shoal.runs.metrics import learned_rows, live_in_pool, round_metrics
from shoal.sandbox.verifier import Verifier as SandboxVerifier
from shoal.selection.pool import Pool
from shoal.selection.shorten import Shortener
from shoal.tasks import Tasks
from shoal.untrusted import printable

logger = logging.getLogger("shoal")

ALONE_NOTED = 10.0
"""Seconds alone after which the user is told."""
LOGGED = (
    *("reward/local", "reward/peers", "rollouts/live_local", "rollouts/sampled", "rollouts/live_pool"),
    *("rollouts/refused", "gradient/peers", "seconds/generate", "seconds/score"),
)
"""Figures of a round that TRL logs, with shoal's names."""
NAMED = 8
"""Peers that the last line names."""
MOST_SLOTS = 64
"""Questions of a round that other nodes take."""
TRIES = 64
"""Rounds in a row without any rollout, after which it gives up."""


class WholeGroups(Pool):
    """A pool of rollouts with `num_generations` completions that fit: TRL compares whole groups of one size."""

    def __init__(self, num_generations: int, fits: Callable[[Completion], object]) -> None:
        """`fits`: gives something true for a completion with tokens to train on."""
        super().__init__()
        self._num_generations = num_generations
        self._fits = fits

    def add(self, scored: Iterable[Scored], round: int) -> None:
        cut = (replace(s, rollout=s.rollout.first(self._num_generations)) for s in scored)
        cut = (replace(s, rewards=s.rewards[: self._num_generations]) for s in cut)
        whole = (s for s in cut if len(s.rewards) == self._num_generations)
        super().add((s for s in whole if all(map(self._fits, s.rollout.completions))), round)


class TrainerLearner:
    """Stands for the trainer, which takes the step itself: it keeps the batch and tells each maker's share of the
    gradient."""

    def __init__(self, policy: LanguagePolicy, scale_rewards: str) -> None:
        self._policy = policy
        self._scale_rewards = scale_rewards

    def update(self, batch: Sequence[Scored], seed: int = 0) -> UpdateResult:
        groups = advantages([scored.rewards for scored in batch], self._scale_rewards)
        sizes: dict[str, float] = defaultdict(float)
        for scored, group in zip(batch, groups, strict=True):
            for completion, advantage in zip(scored.rollout.completions, group, strict=True):
                sizes[scored.rollout.node] += abs(advantage) * len(self._policy.completion_ids(completion))
        total = sum(sizes.values())
        return UpdateResult(gradient_shares={maker: size / total for maker, size in sizes.items()} if total else {})

    def save(self, folder: Path) -> None:
        """Nothing: the trainer saves its optimiser."""

    def load(self, folder: Path) -> None: ...


class Opened:
    """A node of a trainer. All processes of the trainer together are one node; rank zero has its place in the swarm.

        opened.batch(8)         # 8 groups: at most J of them peers', the others own
        opened.metrics          # reward/local, reward/peers, ...

    `Node.act` and `Node.learn` are those of every node. The trainer wants a fixed number of groups: where others have
    fewer than J to give, the node answers more questions of its own."""

    def __init__(self, config: Config, trainer: Any, place: Swarm | None, name: str, round: int) -> None:
        """`config`: the settings of tasks, rewards, selection and network; the trainer has the others. `place`: in a
        swarm of this process, where the node is called `name`; None: the network. `round`: the rounds done before.
        Raises `UserError`."""
        accelerator = trainer.accelerator
        self.ranks = Ranks(accelerator.process_index, accelerator.num_processes, accelerator.local_process_index)
        self.config = _completed(config, trainer)
        self.metrics: dict[str, float] = {}
        """What TRL logs of the last round."""
        self._groups: Counter[str] = Counter()
        self._shares: list[float] = []
        """Groups trained on by their makers, and peers' share of the gradient of each batch that had one."""
        self._membership: SwarmConnection | None = None
        self._said: dict[str, bool] = {}
        """Causes of warnings, and whether each holds now."""
        self._stack = ExitStack()
        try:
            self._open(trainer, place, name)
        except BaseException:
            self.close()
            raise
        self.node.round = round

    def _open(self, trainer: Any, place: Swarm | None, name: str) -> None:
        config, ranks = self.config, self.ranks
        self.policy = policy = TrainerPolicy(trainer, ranks)
        check_stop(trainer, policy.lm)
        self._tasks = tasks = Tasks(config.tasks)
        tasks.refuse_environments("a trainer of TRL")
        verifier = self._stack.enter_context(SandboxVerifier(config.tasks))
        rewards = rewards_of(config, verifier, policy.placement) if ranks.is_zero else None
        if rewards:
            self._stack.callback(rewards.close)
        self._failing = FailedScoring(verifier, rewards)
        self._verifier: Grader = RewardVerifier(tasks, rewards) if rewards else verifier
        joins = place is None
        if place is None and ranks.is_zero:
            name, place = self._join(rewards)
        name = ranks.broadcast(name)
        self.node = Node(
            name=name,
            seed=config.seed,
            tasks=tasks,
            scorer=Scorer(tasks, self._verifier if ranks.size == 1 else RankZeroVerifier(self._verifier, ranks)),
            policy=policy,
            learner=TrainerLearner(policy, trainer.args.scale_rewards),
            swarm=RankZeroSwarm(place, ranks) if place is None or ranks.size > 1 else place,
            selection=make_selection(config),
            pool=WholeGroups(config.policy.num_generations, policy.completion_ids),
            I=config.round.local,
            J=config.round.peers,
            G=config.policy.num_generations,
            shortener=Shortener() if shortens(config, joins) else None,
        )

    def _join(self, rewards: Combined | None) -> tuple[str, Swarm]:
        """The node's name and its place in the network."""
        config, identity, policy = self.config, Identity.load_or_create(identity_path()), self.policy
        self._stack.enter_context(only_node(identity_path(), config.network.name))
        member = SwarmConnection(config, identity, model=public_name(policy.name), rewards=rewards, waits=True)
        self._membership = self._stack.enter_context(closing(member))
        return identity.name, member

    def start(self) -> None:
        """What came in by the network is examined from now on: the node is what it was, if it goes on."""
        if self._membership:
            self._membership.start(self._tasks.identities, self.policy.control_strings())

    def batch(self, groups: int) -> list[Scored]:
        """`groups` scored rollouts to train on, own ones first. Shares all own ones. Raises `UserError` if no answer
        can be scored."""
        node = self.node
        own, came = [scored.question for scored in node.local], node.scorer.score(node.swarm.receive())
        node.pool.add([s for s in came if not is_too_much(self.policy, s.question, own)], node.round + 1)
        peers = min(self.config.round.peers, live_in_pool(node))
        local = self._answer(groups - peers)
        node.local, node.I, node.J = local, groups - peers, peers
        result = node.learn()
        batch = result.batch + self._answer(groups - len(result.batch))
        self._groups.update(scored.rollout.node for scored in batch)
        row = round_metrics(node, result)
        self.metrics = {name: row[name] for name in LOGGED if row.get(name) is not None}
        self._shares += [self.metrics["gradient/peers"]] if "gradient/peers" in self.metrics else []
        self._failing.check(self.ranks, self._verifier.trouble)
        self._say("scoring", self._verifier.trouble)
        if self._membership:
            limits = node.shortener.limits(node.round) if node.shortener else {}
            self._membership.tell(row, learned_rows(node, result), limits)
            self._membership.need(live_in_pool(node), self.config.round.peers)
            status = self._membership.status()
            alone = status["silo_since"] is not None and time.time() - status["silo_since"] > ALONE_NOTED
            self._say("alone", status["note"] if alone else status["warning"])
        return batch

    @property
    def gave(self) -> str:
        """What the peers gave, in a line; empty before the first batch.

        shoal: trained on 400 groups of answers, 160 of peers (40%): bob 120, eve 40; 53% of the gradient."""
        whole = self._groups.total()
        peers = Counter({printable(name, 40): n for name, n in self._groups.items() if name != self.node.name})
        if not whole:
            return ""
        said = f"shoal: trained on {whole} groups of answers, "
        if not peers:
            return f"{said}all its own: no peer's came while it ran"
        named = [f"{name} {count}" for name, count in peers.most_common()]
        named[NAMED:] = [f"and {len(named) - NAMED} more"] * (len(named) > NAMED)
        share = f"; {fmean(self._shares):.0%} of the gradient" if self._shares else ""
        return f"{said}{peers.total()} of peers ({peers.total() / whole:.0%}): {', '.join(named)}{share}"

    def _answer(self, n: int) -> list[Scored]:
        """Own rollouts of `n` questions, scored and shared."""
        local: list[Scored] = []
        failed = 0
        while n > len(local):
            self.node.I = min(n - len(local), MOST_SLOTS)
            self.node.act()
            local += self.node.local
            failed = 0 if self.node.local else failed + 1
            if failed == TRIES:
                why = self._tasks.trouble or self._verifier.trouble
                raise UserError(f"nothing could be asked and scored in {TRIES} rounds in a row: {why}")
        return local

    def _say(self, cause: str, warning: str) -> None:
        """Warns once, until it is over."""
        if warning and not self._said.get(cause):
            logger.warning("shoal: %s", warning)
        self._said[cause] = bool(warning)

    def load(self, folder: Path) -> None:
        """Reads what the node saved. All ranks call it. Raises `UserError` if it cannot be read."""
        try:
            self.node.load(folder)
        except Exception as error:  # the parsers of its files raise whatever they do
            raise UserError(
                f"the state of the node in {folder} cannot be read ({type(error).__name__}: {error}): remove that "
                "folder to go on with an empty pool"
            ) from error

    def close(self) -> None:
        """Leaves the swarm."""
        self._stack.close()


def rows(batch: Sequence[Scored], policy: LanguagePolicy) -> list[dict[str, Any]]:
    """What `rollout_func` returns for each completion of `batch`, in order."""
    return [
        {
            "prompt_ids": prompt,
            "completion_ids": policy.completion_ids(completion),
            "shoal_reward": None if isinstance(reward, Filled) else reward,  # TRL does not learn from it then
            "shoal_question": scored.question.shown,
            "shoal_maker": scored.rollout.node,
        }
        for scored, prompt in [(scored, policy.prompt_ids(scored.question)) for scored in batch]
        for completion, reward in zip(scored.rollout.completions, scored.rewards, strict=True)
    ]


def _completed(config: Config, trainer: Any) -> Config:
    """`config` with what the trainer says. Raises `UserError` for more groups of peers than a batch has room for."""
    args = trainer.args
    groups = args.generation_batch_size // args.num_generations
    peers = config.round.peers if "peers" in config.round.model_fields_set else groups // 2
    if peers >= groups:
        raise UserError(
            f"peers={peers} leaves no room for own rollouts: a generation batch has {groups} groups "
            "(generation_batch_size / num_generations of GRPOConfig)"
        )
    if args.max_completion_length is None:
        raise UserError("say how long answers may be: max_completion_length of GRPOConfig is None")
    config = config.model_copy(deep=True)
    config.round.local, config.round.peers = groups - peers, peers
    config.policy.model = [trainer.model.name_or_path]
    config.policy.num_generations = args.num_generations
    config.policy.max_completion_length = args.max_completion_length
    config.policy.temperature, config.policy.top_p = args.temperature, args.top_p
    return config.resolved()


class TrainerPolicy(LanguagePolicy):
    """Answers with the weights of a GRPOTrainer, as they are when it is asked."""

    def __init__(self, trainer: Any, ranks: Ranks) -> None:
        """Raises `UserError` for a model or a tokenizer that shoal cannot decode with."""
        model, args = plain_model(trainer.model), trainer.args
        bfloat16 = args.bf16 or model.dtype == torch.bfloat16
        placement = Placement(trainer.accelerator.device, torch.bfloat16 if bfloat16 else torch.float32)
        sampling = Sampling(args.temperature, args.top_p, args.max_completion_length)
        with answering(model, placement):
            lm = language_model(model.name_or_path, model, trainer.processing_class)
            super().__init__(lm, sampling, placement, ranks)

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        with answering(self.lm.model, self.placement):
            return super().generate(questions, num_generations, seed)

    def save(self, folder: Path) -> None:
        """Nothing: the trainer saves its model."""


def plain_model(model: Any) -> Any:
    """The transformers model in `model`, with its adapters if it has any. Raises `UserError` for adapters that are no
    part of its layers."""
    if not is_peft_available():
        return model
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        return model
    if model.active_peft_config.is_prompt_learning:
        raise UserError("shoal's decoder reads adapters in layers (LoRA), not learned prompts: take a LoraConfig")
    return model.get_base_model()


@contextmanager
def answering(model: Any, placement: Placement) -> Iterator[None]:
    """Within it the model answers: without dropout or checkpoints of activations, and as fast as it can. Afterwards it
    is as its trainer knows it."""
    training = model.training
    model.eval()
    use_fast_products(model, placement.device)
    try:
        yield
    finally:
        for layer in model.modules():  # the trainer may change in place what a layer returns
            if type(layer) is FastLinear:
                layer.__class__ = torch.nn.Linear  # type: ignore[assignment]
        model.train(training)


def check_stop(trainer: Any, lm: LanguageModel) -> None:
    """Raises `UserError` if TRL would mask answers that end as this model's do."""
    declared = lm.model.generation_config.eos_token_id
    ends = {lm.tokenizer.eos_token_id, *(declared if isinstance(declared, list) else [declared])}
    if trainer.args.mask_truncated_completions and not lm.stop_ids <= ends:
        raise UserError(
            "this model has no chat template, so its answers end with their line, which TRL takes for cut short: leave "
            "out mask_truncated_completions"
        )
