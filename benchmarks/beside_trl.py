"""TRL's GRPOTrainer and shoal by turns in one process: a step of the one, then a round of the other.

    ours = Shoal("guppy-games", tasks, longest=32)
    trainer = Timed(ours, model=..., reward_funcs=..., train_dataset=..., args=settings(out, steps=6, longest=32))
    trainer.train()
    trainer.figures()

A step and a round are the same work: answers to the same questions, rewards, one optimizer step on all of them, from
the same weights. After TRL's first step shoal learns from the very same batch: prompts, tokens, advantages and the norm
of the gradient have to be equal, otherwise there are no figures.

The seconds of the processor are those of this process and its children (shoal scores in one). The first step and round
warm up and are not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.config.tasks import TasksConfig
from shoal.learn.learner import GRPOLearner
from shoal.policy.decoders.base import Sampling
from shoal.policy.device import place
from shoal.policy.language import LanguagePolicy
from shoal.policy.turns import by_turn
from shoal.rollout import Completion, FinishReason, Part, Rollout, Scored
from shoal.sandbox.replay import attach_environments, replayed
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks

QUESTIONS, G = 8, 8
LEARNING_RATE = 1e-6
"""So small that later steps have the work of the first ones."""
CLOSE = 1e-3
"""The most that the two norms of a gradient may differ, relative to them."""


def settings(out: Path, steps: int, longest: int, **more: Any) -> GRPOConfig:
    """All completions in one micro-batch: with models so small that is TRL's fastest way."""
    return GRPOConfig(
        output_dir=str(out),
        max_steps=steps,
        per_device_train_batch_size=QUESTIONS * G,
        num_generations=G,
        max_completion_length=longest,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        model_init_kwargs={"dtype": "float32"},
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        shuffle_dataset=False,
        logging_steps=1,
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=0.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        **more,
    )


class Shoal:
    """What a node does with given questions: answers, scores them in the guarded process, learns."""

    def __init__(self, model: str, config: TasksConfig, longest: int) -> None:
        self.policy = LanguagePolicy(model, Sampling(max_completion_length=longest), place("cpu"))
        self.learner = GRPOLearner(self.policy, LearnerConfig(), PeersConfig(), LEARNING_RATE)
        self.verifier = Verifier(config)
        self.tasks = Tasks(config)
        self.questions = self.tasks.draw(QUESTIONS, "benchmark")
        attach_environments(self.policy, self.verifier)

    def round(self, seed: int) -> int:
        """A round; the number of tokens that were drawn in it."""
        answers = self.policy.generate(self.questions, G, seed)
        self.learner.update(self.scored(answers), seed)
        return sum(len(c.token_ids or ()) for group in answers for c in group)

    def scored(self, answers: Sequence[Sequence[Completion]]) -> list[Scored]:
        rollouts = []
        for question, group in zip(self.questions, answers, strict=True):
            rollout = Rollout(question.id, question.hash, tuple(group), "ours", 1)
            held = replayed(rollout, question, self.verifier) if question.turns > 1 else rollout
            assert held is not None, self.verifier.failures
            rollouts.append(held)
        rewards = self.verifier.score([(r.question, [c.answer for c in r.completions]) for r in rollouts])
        return [Scored(r, q, tuple(lively(each))) for r, q, each in zip(rollouts, self.questions, rewards, strict=True)]

    def completion(self, token_ids: list[int]) -> Completion:
        """The policy's own tokens as a completion."""
        tokenizer: Any = self.policy.lm.tokenizer
        turns = by_turn(token_ids, self.policy.lm.stop_ids)
        parts = [Part(tokenizer.decode(turn, skip_special_tokens=True)) for turn in turns]
        reason = FinishReason.stop if token_ids[-1] in self.policy.lm.stop_ids else FinishReason.length
        return Completion(tuple(parts), reason, tuple(token_ids))

    def tokens(self, scored: Scored) -> tuple[list[int], list[list[int]]]:
        """Those of the prompt, as TRL writes pictures, and all behind it of each completion."""
        vision = self.policy.lm.vision
        prompt = [vision.image_id if vision and id < 0 else id for id in self.policy.prompt_ids(scored.question)]
        found = []
        for completion in scored.rollout.completions:
            ids, observed = self.policy.conversation_ids(scored.question, completion)
            found.append([id for n, own in enumerate(ids) for id in (*observed.get(n, ()), own)])
        return prompt, found


class Timed(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which lets shoal go after each of its steps."""

    def __init__(self, ours: Shoal, **options: Any) -> None:
        super().__init__(**options, callbacks=[Then(self)])
        self.ours = ours
        self.batch: dict[str, Any] = {}
        self.norm = 0.0
        """Of the gradient that shoal computes of TRL's first batch."""
        self.began = now()
        self.seconds: dict[str, list[tuple[float, float]]] = {"trl": [], "shoal": []}
        self.drawn: dict[str, list[int]] = {"trl": [], "shoal": []}

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.began = now()
        self.batch = super()._generate_and_score_completions(inputs)
        return self.batch

    def stepped(self) -> None:
        """After a step of TRL's: the round of shoal's."""
        self.drawn["trl"].append(sum(map(len, self.own_tokens())))
        self._count("trl")
        if not self.norm:
            self.norm = self.learned_alike()
        self.began = now()
        self.drawn["shoal"].append(self.ours.round(len(self.drawn["trl"])))
        self._count("shoal")

    def own_tokens(self) -> list[list[int]]:
        """Those that TRL drew, of each completion."""
        mask = self.batch["completion_mask"] * self.batch.get("tool_mask", 1)
        return [ids[own.bool()].tolist() for ids, own in zip(self.batch["completion_ids"], mask, strict=True)]

    def learned_alike(self) -> float:
        """Has shoal score and learn from TRL's batch. Returns the norm of its gradient."""
        completions = [self.ours.completion(ids) for ids in self.own_tokens()]
        batch = self.ours.scored([completions[row : row + G] for row in range(0, len(completions), G)])
        prompts, rests = (
            [ids[mask.bool()].tolist() for ids, mask in zip(*map(self.batch.get, names), strict=True)]
            for names in (("prompt_ids", "prompt_mask"), ("completion_ids", "completion_mask"))
        )
        for number, scored in enumerate(batch):
            prompt, rest = self.ours.tokens(scored)
            rows = slice(number * G, number * G + G)
            advantages = self.batch["advantages"][rows]
            mean = statistics.fmean(scored.rewards)
            assert prompts[rows] == [prompt] * G, "other prompts"
            assert rests[rows] == rest, "other tokens"
            assert torch.allclose(advantages, torch.tensor(scored.rewards) - mean, atol=1e-5), "other advantages"
        return float(self.ours.learner.update(batch).metrics["grad_norm"])

    def figures(self) -> dict[str, Any]:
        theirs = float(self.state.log_history[0]["grad_norm"])
        assert abs(self.norm - theirs) <= CLOSE * theirs, f"other gradients: {self.norm} and {theirs}"
        found: dict[str, Any] = {"gradient": {"trl": theirs, "shoal": self.norm}, "drawn": self.drawn}
        for which, name in enumerate(("clock", "processor")):
            seconds = {who: [each[which] for each in times[1:]] for who, times in self.seconds.items()}
            pairs = sorted(t / s for t, s in zip(seconds["trl"], seconds["shoal"], strict=True))
            medians = {who: statistics.median(times) for who, times in seconds.items()}
            ratio = medians["trl"] / medians["shoal"]
            found[name] = {"ratio": ratio, "least": pairs[0], "most": pairs[-1], "seconds": medians}
        return found

    def _count(self, name: str) -> None:
        clock, processor = now()
        self.seconds[name].append((clock - self.began[0], processor - self.began[1]))


class Then(TrainerCallback):  # type: ignore[misc]
    def __init__(self, trainer: Timed) -> None:
        self.trainer = trainer

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        self.trainer.stepped()


def lively(scores: Sequence[float]) -> list[float]:
    """The rewards of several groups by their scores, of which no group's are all equal: TRL computes those, too, and
    shoal leaves them out."""
    return [(score + place % 2) / 2 for place, score in enumerate(scores)]


def now() -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    children = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return time.perf_counter(), time.process_time() + sum(each.user + each.system for each in children)
