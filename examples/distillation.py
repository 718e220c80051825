"""A learner of one's own: peers' successes as context, not as tokens. It does not pay (docs/studies/README.md).

    shoal run --learner examples/distillation.py:peers

A peer's right answer is never trained on. The node answers the peer's question itself. Its own model, shown the right
answer as an earlier turn, is the teacher: its distribution at each token of the node's own answers is distilled onto
the model that is not shown it. This is self-distillation (SDPO, arXiv 2601.20802) from peers' successes. Only text
travels, and all of it passes through the node's own model before it teaches anything.

Shape suffixes: T trained tokens, D hidden size, V vocabulary, L all tokens that are distilled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

import msgspec
import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.learn.batch import Family, Row, Trained, make_rows
from shoal.learn.learner import Fixed, GRPOLearner, Sums
from shoal.learn.logprobs import CHUNK_ELEMENTS, logits, trained_hidden
from shoal.policy.language import LanguagePolicy
from shoal.protocols import Policy, UpdateResult
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Message, Question, Rollout, Scored, seed_of
from shoal.sandbox.replay import refuse_conversations

RIGHT = 1 - 1e-6
"""The least reward of a right answer."""


@dataclass(frozen=True)
class Lesson:
    """Own answers to a question, and the right one that their teacher is shown."""

    question: Question
    answers: Sequence[Completion]
    right: Completion
    taught: bool = True
    """Whether its answers are distilled. They count in the average in any case."""


class PeerDistillation(GRPOLearner):
    """GRPO on own rollouts, and distillation on own answers to questions that peers got right.

    `context` is what the teacher is shown:

    - peers: the peer's shortest right answer.
    - failed: the same, but only for questions to which all of the node's own answers are wrong. All of its answers are
      trained on as own rollouts, too.
    - own: the shortest of the node's own right answers, as in SDPO. That answer itself is shown the next shortest.
    - none: nothing. The answers are trained on as own rollouts are: the control for the further answers.

    A function of yours in `learner.factory` sets another weight:

        def lighter(policy, config):
            return PeerDistillation(policy, config, weight=0.3)
    """

    def __init__(
        self,
        policy: Policy,
        config: Config,
        context: Literal["peers", "failed", "own", "none"] = "peers",
        weight: float = 1.0,
    ) -> None:
        """`weight`: of the divergence, beside the loss of own rollouts. Raises `UserError`."""
        if not isinstance(policy, LanguagePolicy) or policy.ranks.size > 1:
            raise UserError("distillation trains language models in one process: leave out --learner, or torchrun")
        super().__init__(policy, config.learner, config.peers)
        self.answering = policy
        self.G = config.policy.num_generations
        self.context = context
        self.weight = weight
        self.scorer: Scorer | None = None
        self.node = ""
        self._students: list[Row] = []
        self._teachers: list[Row] = []
        self._divergence = 0.0

    def update(self, batch: Sequence[Scored], seed: int = 0) -> UpdateResult:
        """Learns from the own rollouts of `batch`, and from answers to the questions of others that they got right."""
        refuse_conversations([scored.question for scored in batch], "distillation")
        own = [scored for scored in batch if not scored.from_peer]
        solved = [scored for scored in batch if scored.from_peer and max(scored.rewards) >= RIGHT]
        shown = [self._shortest(scored.question, right_answers(scored)) for scored in solved]
        asked = [(scored, right) for scored, right in zip(solved, shown, strict=True) if right]
        questions = [scored.question for scored, _ in asked]
        answers = self.answering.generate(questions, self.G, seed_of(seed, "answers")) if asked else []
        lessons = [Lesson(q, a, right) for q, a, (_, right) in zip(questions, answers, asked, strict=True)]
        figures: dict[str, float] = {"distill/questions": len(asked), "distill/too_long": len(solved) - len(asked)}
        if self.context != "peers" and asked:
            anew = self._scored([scored.rollout for scored, _ in asked], answers, own)
            figures["distill/reward"] = fmean(reward for scored in anew for reward in scored.rewards)
            if self.context == "own":
                lessons = [lesson for scored in anew for lesson in self._own_lessons(scored)]
            else:
                own = [*own, *anew]
                failed = [self.context == "failed" and not right_answers(scored) for scored in anew]
                lessons = [replace(lesson, taught=one) for lesson, one in zip(lessons, failed, strict=True)]
            figures["distill/lessons"] = len(
                {lesson.question.id for lesson in lessons if lesson.taught and lesson.answers}
            )
        self._pack(lessons)
        self._divergence = 0.0
        result = super().update(own, seed)
        metrics = result.metrics | figures | self._spent(questions, answers)
        if tokens := self._tokens * self.config.num_iterations:
            metrics["distill/divergence"] = self._divergence / tokens
            metrics["tokens/trained"] += tokens
        return UpdateResult(metrics, result.gradient_shares)

    def _shortest(self, question: Question, answers: Sequence[Completion]) -> Completion | None:
        """The shortest of `answers` in this model's tokens. None if it does not fit: into an answer, or, shown before
        the question, into what the model reads."""
        lengths = [len(self.policy.completion_ids(answer)) for answer in answers]
        fitting = [(length, place) for place, length in enumerate(lengths) if length]
        if not fitting:
            return None
        shortest = answers[min(fitting)[1]]
        longest = len(self.policy.prompt_ids(with_example(question, shortest))) + self._longest
        return shortest if longest <= self.answering.context else None

    def _own_lessons(self, scored: Scored) -> list[Lesson]:
        """Every answer learns from the shortest right one; that one from the next, if there is another."""
        answers = scored.rollout.completions
        right = right_answers(scored)
        first = self._shortest(scored.question, right)
        second = self._shortest(scored.question, [answer for answer in right if answer is not first])
        rest = [answer for answer in answers if answer is not first]
        found = [Lesson(scored.question, rest, first)] if first else []
        return [*found, Lesson(scored.question, [first], second)] if first and second else found

    def _scored(
        self, rollouts: Sequence[Rollout], answers: Sequence[tuple[Completion, ...]], own: Sequence[Scored]
    ) -> list[Scored]:
        """The node's own answers to the questions of peers' `rollouts`, rewarded as its other answers are."""
        if self.scorer is None:
            raise UserError(f"distillation with context {self.context!r} needs a scorer: set the learner's `scorer`")
        number = own[0].rollout.round if own else 0
        return self.scorer.score(
            [
                msgspec.structs.replace(rollout, completions=group, node=self.node, round=number)
                for rollout, group in zip(rollouts, answers, strict=True)
            ]
        )

    def _pack(self, lessons: Sequence[Lesson]) -> None:
        """Rows of the same answers, after what the student reads and after what the teacher does."""
        self._students, self._teachers = [], []
        ids = [[self.policy.completion_ids(answer) for answer in lesson.answers] for lesson in lessons]
        lengths = [len(one) for of_lesson in ids for one in of_lesson]
        weights = iter(self.loss.average.weights(lengths, self._longest))
        offset = 0
        for lesson, of_lesson in zip(lessons, ids, strict=True):
            sequences = []
            for one in of_lesson:
                weight = self.weight * next(weights)
                if one and lesson.taught:
                    sequences.append(Trained(one, 0.0, weight, offset))
                    offset += len(one)
            seen = self.policy.prompt_ids(lesson.question)
            shown = self.policy.prompt_ids(with_example(lesson.question, lesson.right))
            self._students += make_rows(seen, sequences, self.token_budget)
            self._teachers += make_rows(shown, sequences, self.token_budget)

    def steps(self, rows: list[Row]) -> int:
        return super().steps(rows or self._students)

    def add_gradient(self, rows: list[Row], fixed: Fixed, sums: Sums) -> None:
        super().add_gradient(rows, fixed, sums)
        taught_LD = self._taught()
        for family in self.families(self._students):
            self._distil(family, taught_LD, sums)

    @torch.no_grad()
    def _taught(self) -> torch.Tensor:
        """The teacher's last hidden states (L, D), at the offsets of the tokens that they predict."""
        width = self.model.get_output_embeddings().weight.shape[1]
        taught_LD = torch.zeros(self._tokens, width, dtype=self.model.dtype, device=self.device)
        for family in self.families(self._teachers):
            prefix = self.prefix(family)
            for batch in self.micro_batches(family):
                with self.policy.placement.autocast():
                    hidden_TD = trained_hidden(self.model, batch, prefix.layers if prefix else [])
                taught_LD[batch.offsets_T] = hidden_TD.to(taught_LD.dtype)
        return taught_LD

    def _distil(self, family: Family, taught_LD: torch.Tensor, sums: Sums) -> None:
        """Adds the gradient of a family's divergence."""
        with self.checkpointing.of(family.shared):
            prefix = self.prefix(family)
        for batch in self.micro_batches(family):
            with self.checkpointing.of(batch.input_ids_RS.numel()), self.policy.placement.autocast():
                hidden_TD = trained_hidden(self.model, batch, prefix.layers if prefix else [])
                taught_TD = taught_LD[batch.offsets_T]
                kl_T = token_divergence(self.model, hidden_TD, taught_TD, self.policy.sampling.temperature)
            loss = (kl_T * batch.weights_T).sum()
            loss.backward()
            sums.add(loss=loss)
            self._divergence += kl_T.detach().sum().item()
        if prefix is not None:
            prefix.backward()

    def cost(self, rows: list[Row], fixed: Fixed) -> dict[str, float]:
        """With the passes of student and teacher."""
        cost, steps = super().cost(rows, fixed), self.config.num_iterations
        learned, taught = self.tokens_read(self._students), self.tokens_read(self._teachers)
        cost["tokens/read"] += steps * (learned + taught)
        cost["flops/learn"] += self.flops.learning(learned, self._tokens, steps)
        cost["flops/learn"] += steps * self.flops.passes(taught, self._tokens)
        return cost

    def _spent(self, questions: Sequence[Question], answers: Sequence[Sequence[Completion]]) -> dict[str, float]:
        """What the further answers took."""
        generated = sum(len(self.policy.completion_ids(answer)) for group in answers for answer in group)
        prompted, flops = self.answering.cost(questions, answers)
        return {"tokens/generated": generated, "tokens/prompted": prompted, "flops/generate": flops}

    @property
    def _tokens(self) -> int:
        """L: all tokens that are distilled, in each step."""
        return sum(len(s.token_ids) for row in self._students for s in row.sequences)

    @property
    def _longest(self) -> int:
        return self.answering.sampling.max_completion_length


def peers(policy: Policy, config: Config) -> PeerDistillation:
    """From peers' right answers."""
    return PeerDistillation(policy, config, "peers")


def failed(policy: Policy, config: Config) -> PeerDistillation:
    """From peers' right answers, where the node fails itself."""
    return PeerDistillation(policy, config, "failed")


def own(policy: Policy, config: Config) -> PeerDistillation:
    """From the node's own right answers to peers' questions."""
    return PeerDistillation(policy, config, "own")


def none(policy: Policy, config: Config) -> PeerDistillation:
    """Peers' questions are own ones, and nothing is distilled."""
    return PeerDistillation(policy, config, "none")


def right_answers(scored: Scored) -> list[Completion]:
    return [c for c, reward in zip(scored.rollout.completions, scored.rewards, strict=True) if reward >= RIGHT]


def with_example(question: Question, right: Completion) -> Question:
    """The question, with itself and a right answer as its last worked example. No text in it is more than text."""
    asked = tuple(message for message in question.prompt if message.role != "system")
    return msgspec.structs.replace(question, examples=(*question.examples, *asked, Message("assistant", right.text)))


def token_divergence(
    model: PreTrainedModel, hidden_TD: torch.Tensor, taught_TD: torch.Tensor, temperature: float
) -> torch.Tensor:
    """KL(student || teacher) of softmax(logits / temperature) before each token (T,), in nats, float32 at least. Both
    are `model`: `hidden_TD` are the student's last hidden states, `taught_TD` the teacher's, which get no gradient.

    The reverse divergence of SDPO (arXiv 2601.20802): sum over v of p_v (log p_v - log q_v), p the student's.
    """
    rows = max(1, CHUNK_ELEMENTS // (2 * model.get_output_embeddings().weight.shape[0]))
    chunks = list(zip(hidden_TD.split(rows), taught_TD.split(rows), strict=True))
    again = len(chunks) > 1 and torch.is_grad_enabled()  # logits are then computed once more in the backward pass
    return torch.cat(
        [
            checkpoint(_head, model, hidden, taught, temperature, use_reentrant=False)
            if again
            else _head(model, hidden, taught, temperature)
            for hidden, taught in chunks
        ]
    )


def _head(model: PreTrainedModel, hidden_TD: torch.Tensor, taught_TD: torch.Tensor, temperature: float) -> torch.Tensor:
    # The student's first: up to torch 2.10 autocast keeps a copy of the weights that is made without gradients.
    student_TV = logits(model, hidden_TD, temperature)
    with torch.no_grad():
        taught_TV = logits(model, taught_TD, temperature)
    kl_T: torch.Tensor = _ReverseKL.apply(student_TV, taught_TV)
    return kl_T


class _ReverseKL(torch.autograd.Function):
    """KL(softmax(logits) || softmax(taught)). Its gradient is written out: p (log p - log q - KL)."""

    @staticmethod
    def forward(ctx: Any, logits_TV: torch.Tensor, taught_TV: torch.Tensor) -> torch.Tensor:
        logps_TV = logits_TV.log_softmax(-1)
        ratios_TV = logps_TV - taught_TV.log_softmax(-1)
        probs_TV = logps_TV.exp_()
        kl_T: torch.Tensor = torch.linalg.vecdot(probs_TV, ratios_TV)
        ctx.save_for_backward(ratios_TV.sub_(kl_T[:, None]).mul_(probs_TV))
        return kl_T

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        slopes_TV: torch.Tensor = ctx.saved_tensors[0]
        return slopes_TV * gradients[0][:, None], None
