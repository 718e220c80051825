"""When a trainer begins, saves and ends, its node does."""

from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from shoal.errors import UserError

NEVER_ASKED = (
    "this trainer does not call rollout_func, so it cannot join a swarm: shoal needs trl.GRPOTrainer as TRL has it "
    "(not unsloth's, not AsyncGRPO)"
)


class Trained(Protocol):
    """What the callback tells how far the training has come."""

    def begin(self, resumed: Path | None, step: int) -> None:
        """`resumed`: the checkpoint after `step`, if the training goes on from one."""

    @property
    def was_asked(self) -> bool:
        """Whether the trainer has asked for rollouts since it began."""

    def save(self, checkpoint: Path) -> None: ...

    def close(self) -> None: ...


class SwarmCallback(TrainerCallback):
    """Tells a node of the trainer's steps. Raises `UserError` for a trainer without an end or without the hooks."""

    def __init__(self, node: Trained) -> None:
        self.node = node

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.max_steps <= 0:
            raise UserError("a swarm's questions never end: say how long to train with GRPOConfig(max_steps=...)")
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
