"""The node of a trainer, as its user sees it: settings, and hooks for the GRPOTrainer. Nothing that either was told is
ignored in silence."""

from __future__ import annotations

import atexit
import logging
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from shoal.config.load import config_from_keywords
from shoal.config.names import from_keywords
from shoal.config.own_code import refuse_import
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.membership.settings import check_network
from shoal.runs.disk import disk_errors
from shoal.tasks.data.spec import keep_data
from shoal.tasks.suites import specs_of
from shoal.transports.memory import MemorySwarm
from shoal_extras.trl.opened import Opened, rows

logger = logging.getLogger("shoal")

PLACEHOLDER: Final = "(see question)"
"""The prompt of every row of the trainer's data set."""
ROWS: Final = 65_536
"""Rows of the data set. It is read again from the beginning when it ends."""
FOLDER: Final = "shoal"
"""In a checkpoint of the trainer: the state of the node."""
NEVER_ASKED = "this trainer does not call rollout_func, so it cannot join a swarm: shoal needs trl.GRPOTrainer"
ASYNC = (
    "AsyncGRPOTrainer cannot join a swarm: a vLLM server answers for it, and it has no rollout_func by which peers' "
    "answers could come. Take trl.GRPOTrainer"
)
UNSLOTH = (
    "unsloth cannot join a swarm: it replaces GRPOTrainer's code and the layers that shoal's decoder reads. Do not "
    "import it, and take trl.GRPOTrainer (LoRA by peft_config)"
)
UNREAD: Final = (
    *("use_vllm", "use_transformers_paged", "use_transformers_continuous_batching", "generation_kwargs"),
    *("top_k", "min_p", "chat_template_kwargs", "cast_lm_head_to_fp32"),
)
"""Settings of GRPOConfig, off by default, that shoal's decoder does not read. Not every TRL has all of them."""
SECTIONS: Final = {"seed", "tasks", "rewards", "selection", "network"}
"""Of shoal's settings, those that the trainer does not have."""


class TRLNode:
    """A GRPOTrainer's place in a swarm.

        with TRLNode(connect="relay.example.org:7447", swarm="lagoon", suite="reef", peers=4) as node:
            GRPOTrainer(model, args=GRPOConfig(max_steps=200), **node.hooks).train()

    The node is in the swarm while the trainer trains. It needs no network: alone, the trainer trains on own rollouts.
    """

    def __init__(self, within: MemorySwarm | None = None, /, name: str = "trainer", **settings: Any) -> None:
        """`settings`: those of `shoal.join` for tasks, rewards, selection and network, and `peers` (J): how many
        groups of a generation batch are peers', as far as the pool has them; by default half. The trainer has all
        other settings. `within`: a swarm in this process instead of the network, where the node is called `name`.

        Raises `UserError` for settings that cannot be used.
        """
        refuse_import()
        _refuse_unsloth()
        self.config = node_config(settings, network=within is None)
        self._place, self._name = within.join(name) if within else None, name
        self._opened: Opened | None = None
        self._round = 0
        self._resumed: Path | None = None
        self.was_asked = False
        """Whether the trainer has asked for rollouts since it began."""

    @property
    def hooks(self) -> dict[str, Any]:
        """What to give to GRPOTrainer as keyword arguments, beside the model and `args`."""
        return {
            "train_dataset": self.dataset,
            "reward_funcs": [self.own_and_peers],
            "rollout_func": self.rollout_func,
            "callbacks": [SwarmCallback(self)],
        }

    @cached_property
    def dataset(self) -> Any:
        """Rows that say only that a question belongs there: `rollout_func` gives the prompts."""
        from datasets import Dataset

        return Dataset.from_dict({"prompt": [PLACEHOLDER] * ROWS})

    def rollout_func(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """The tokens of own and peers' answers, with their rewards in further columns. TRL calls it."""
        if not trainer.model.training:
            raise UserError("held-out questions are shoal's: leave out eval_dataset, and take `shoal eval CHECKPOINT`")
        if any(prompt != PLACEHOLDER for prompt in prompts):
            raise UserError(
                "the trainer's train_dataset is not that of node.hooks: give rows of your own to the TRLNode "
                "(data=rows)"
            )
        self.was_asked = True
        opened = self._opened or self._open(trainer)
        size, rank = opened.ranks.size, opened.ranks.rank
        batch = opened.batch(len(prompts) * size // trainer.args.num_generations)
        self._round = opened.node.round
        mine = rows(batch, opened.policy)[rank * len(prompts) : (rank + 1) * len(prompts)]
        return {"logprobs": None, **{column: [row[column] for row in mine] for column in mine[0]}}

    def own_and_peers(
        self,
        completions: Sequence[Any],
        log_extra: Callable[[str, list[Any]], None],
        log_metric: Callable[[str, float], None],
        shoal_reward: Sequence[float | None] | None = None,
        shoal_question: Sequence[str] = (),
        shoal_maker: Sequence[str] = (),
        **columns: Any,
    ) -> list[float | None]:
        """The rewards that shoal gave, as a reward function of TRL. It also logs the round's figures."""
        if shoal_reward is None or self._opened is None:
            raise UserError(NEVER_ASKED)
        log_extra("question", list(shoal_question))
        log_extra("maker", list(shoal_maker))
        for metric, value in self._opened.metrics.items():
            log_metric(metric, value)
        return list(shoal_reward)

    def begin(self, resumed: Path | None, step: int) -> None:
        """The trainer begins after `step`, from the checkpoint `resumed` or anew."""
        self.close()  # of a training that did not end
        self.was_asked = False
        self._resumed = resumed
        self._round = max(self._round, step)

    def save(self, checkpoint: Path) -> None:
        """Writes the node's state into a checkpoint of the trainer. Raises `UserError` for a full disk."""
        if self._opened is None:
            return
        folder, temporary = checkpoint / FOLDER, checkpoint / f".{FOLDER}"
        for left in (temporary, folder):  # by a killed process, or an earlier training with the same output_dir
            shutil.rmtree(left, ignore_errors=True)
        with disk_errors(folder):
            self._opened.node.save(temporary)
            temporary.rename(folder)

    def close(self) -> None:
        """Leaves the swarm. A trainer that trains again joins again."""
        atexit.unregister(self.close)
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
            if opened.ranks.is_zero and opened.gave:
                print(opened.gave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, TypeError) and "AsyncGRPOTrainer" in str(error) and "rollout_func" in str(error):
            raise UserError(ASYNC) from error

    def _open(self, trainer: Any) -> Opened:
        check_trainer(trainer, self.own_and_peers)
        opened = Opened(self.config, trainer, self._place, self._name, self._round)
        self._opened = opened
        atexit.register(self.close)  # also after an error or Ctrl-C
        if self._resumed:
            kept = self._resumed / FOLDER
            if opened.ranks.broadcast(kept.is_dir()):
                opened.load(kept)
            elif opened.ranks.is_zero:
                logger.warning("shoal: %s has no state of a node, so the pool is empty", self._resumed)
        opened.start()
        return opened


def _refuse_unsloth() -> None:
    if "unsloth" in sys.modules:
        raise UserError(UNSLOTH)


class SwarmCallback(TrainerCallback):
    """Tells a node of the trainer's steps. Raises `UserError` for a trainer without an end or without the hooks."""

    def __init__(self, node: TRLNode) -> None:
        self.node = node

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.max_steps <= 0:
            raise UserError("a swarm's questions never end: say how long to train with GRPOConfig(max_steps=...)")
        _refuse_unsloth()
        self.node.begin(_checkpoint(args, state) if state.global_step else None, state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not self.node.was_asked:
            raise UserError(NEVER_ASKED)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self.node.save(_checkpoint(args, state))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.node.close()


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"


def check_trainer(trainer: Any, reward: Any) -> None:
    """Raises `UserError` for settings of the trainer that would have no effect here. `reward`: the one function that it
    must have."""
    args = trainer.args
    unread = [name for name in UNREAD if vars(args).get(name)]
    if args.repetition_penalty != 1.0:
        unread.append("repetition_penalty")
    if unread:
        raise UserError(f"shoal decodes by temperature and top_p alone: leave out {', '.join(unread)}")
    if not isinstance(trainer.processing_class, PreTrainedTokenizerBase):
        raise UserError("shoal's tasks are text: give the trainer a model with a tokenizer, not with a processor")
    if trainer.tools:
        raise UserError("shoal's questions are answered in one turn: leave out tools and environment_factory")
    if trainer.reward_funcs != [reward]:
        raise UserError(
            "shoal scores own and peers' answers alike: give your reward functions to the TRLNode "
            "(rewards=[short]), and the trainer none but node.hooks has"
        )
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise UserError("shoal's decoder needs all weights on each device: start several processes without sharding")


def node_config(settings: dict[str, Any], network: bool) -> Config:
    """The configuration of keyword arguments, as `shoal.join` takes them. `network`: whether the node joins one. Raises
    `UserError` for a setting that is unknown, cannot be used, or is the trainer's."""
    settings = keep_data(settings)
    nested = from_keywords(settings)
    config = config_from_keywords(settings)
    theirs = sorted(set(nested) - SECTIONS - {"round"}) + sorted(set(nested.get("round", {})) - {"peers"})
    if theirs:
        raise UserError(
            f"'{theirs[0]}' is no setting of a trainer's node: models, decoding and learning are GRPOConfig's, and "
            "`peers` says how many groups of a batch are those of peers"
        )
    specs_of(config.tasks)  # a mistyped name is reported before a model is loaded
    if network:
        check_network(config)
    return config
