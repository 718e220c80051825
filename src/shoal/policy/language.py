"""A language model as a policy: questions in, completions out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median_low
from typing import Any

from shoal.errors import Stopped, UserError
from shoal.parallel.ranks import ALONE, Ranks
from shoal.policy.control import control_strings
from shoal.policy.decoders.base import Decoder, Dialogue, MakeDecoder, Request, Sampled, Sampling, check_decoder
from shoal.policy.decoders.generate import fitting_decoder
from shoal.policy.device import Placement, place
from shoal.policy.families import kept_tokens
from shoal.policy.flops import Flops
from shoal.policy.loading import LanguageModel, load
from shoal.policy.plain import PlainText
from shoal.policy.products import use_fast_products
from shoal.policy.reading import UNCOMPARED, most_tokens
from shoal.policy.template import LINES, OWN, ChatFrame, chat_template
from shoal.policy.trial import reads
from shoal.policy.turns import OBSERVED, Between, Observer, after_answer, by_turn
from shoal.policy.vision import check_pictures
from shoal.protocols import OnProgress
from shoal.rollout import Completion, FinishReason, Part, Question, seed_of
from shoal.sandbox.replay import Replayer, refuse_conversations
from shoal.tasks.task import too_long


class LanguagePolicy:
    """Answers questions with a causal language model; a learner trains `lm`.

    Text is the truth: `prompt_ids` and `completion_ids` turn anybody's text into this model's own tokens. Prompt and
    completion are tokenised apart, so that no token spans both. No text becomes a control token, whatever it spells.
    """

    trouble = ""
    """How many questions of the last `generate` were too long for a completion; "" if none was."""
    on_progress: OnProgress | None = None
    on_text: Callable[[str], None] | None = None
    """Takes the first completion so far while it comes. Not every decoder tells."""
    replayer: Replayer | None = None
    """Gives the environments' answers in conversations. Whoever builds the node sets it."""

    def __init__(
        self,
        model: str | LanguageModel,
        sampling: Sampling | None = None,
        placement: Placement | None = None,
        ranks: Ranks = ALONE,
        *,
        max_completion_length: int = 256,
        decoder: MakeDecoder | None = None,
    ) -> None:
        """`model`: a name on the Hub, a folder, a GGUF file or "guppy". `placement`: None: the best that this machine
        has. `max_completion_length`: if there is no `sampling`. `ranks`: among which questions are divided.
        `decoder`: None: the fastest that is right."""
        self.placement = placement or place()
        self.sampling = sampling or Sampling(max_completion_length=max_completion_length)
        self.lm = load(model, self.placement.device) if isinstance(model, str) else model
        self.ranks = ranks
        self.lm.model.eval()
        use_fast_products(self.lm.model, self.placement.device)
        if decoder is None:
            self.decoder: Decoder = fitting_decoder(self.lm, self.placement)
        else:
            self.decoder = decoder(self.lm, self.placement)
            check_decoder(self.decoder, self.lm, self.placement)
        check_pictures(self.lm.model, self.lm.name, self.placement)
        self._template = chat_template(self.lm.tokenizer, self.lm.name)
        vision = self.lm.vision
        of_pictures = frozenset() if vision is None else frozenset([vision.image_id])
        self._plain = PlainText(self.lm.tokenizer, of_pictures)
        self._had_room = False

    @property
    def name(self) -> str:
        return self.lm.name

    @property
    def context(self) -> int:
        """The most tokens that the model reads, with its answer."""
        return min(reads(self.lm.model), self.decoder.context or sys.maxsize)

    def has_room(self, question: Question) -> bool:
        """Whether the model can read the question with its longest answer."""
        return len(self.prompt_ids(question)) + self.sampling.max_completion_length <= self.context

    def _without_long(
        self, questions: Sequence[Question], prompts: Sequence[list[int]], num_generations: int, seed: int
    ) -> list[tuple[Completion, ...]] | None:
        """The answers where some questions are too long for the model, or far longer than half of the others. None: all
        fit, or none ever did."""
        self.trouble = ""
        most = most_tokens([median_low(map(len, prompts))] if prompts else [], UNCOMPARED)
        room = min(self.context - self.sampling.max_completion_length, most)
        fit = [question for question, prompt in zip(questions, prompts, strict=True) if len(prompt) <= room]
        self._had_room = self._had_room or bool(fit)
        if len(fit) == len(questions) or not self._had_room:
            return None
        answered = iter(self.generate(fit, num_generations, seed) if fit else [])
        groups = [next(answered) if len(prompt) <= room else () for prompt in prompts]
        self.trouble = too_long(groups)
        return groups

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """`num_generations` completions for each question; the same `seed` gives the same ones. () for a question
        that is too long. Raises `UserError` if all are that were ever asked."""
        prompts = [self.prompt_ids(question) for question in questions]
        if (answered := self._without_long(questions, prompts, num_generations, seed)) is not None:
            return answered
        prompt_length, answer_length = max(map(len, prompts), default=0), self.sampling.max_completion_length
        turns = max((question.turns for question in questions), default=1)
        if turns > 1 and not self.decoder.holds_conversations:
            refuse_conversations(questions, type(self.decoder).__name__)
        if turns > 1 and (self.replayer is None or self.ranks.size > 1):
            refuse_conversations(questions, "several processes" if self.replayer else "a policy without `replayer`")
        longest = prompt_length + answer_length
        if longest > self.context:
            raise UserError(
                f"model '{self.name}' reads {self.context} tokens, but a question with its answer may take {longest}; "
                "lower --max-completion-length or --examples, or choose other tasks"
            )
        observer = dialogue = None
        if turns > 1 and self.replayer is not None:
            observer = Observer(questions, self.replayer, self._texts, self._between)
            longest = min(self.context - prompt_length, self._room(turns))
            dialogue = Dialogue([question.turns for question in questions], longest, observer.answer)
        mine, on_progress, on_text = self.ranks.mine(list(enumerate(prompts))), self.on_progress, self.on_text
        request = Request(
            [prompt for _, prompt in mine],
            num_generations,
            [seed_of(seed, number) for number, _ in mine],
            self.sampling,
            self.lm.stop_ids,
            on_progress and (lambda answered: on_progress(self.ranks.size * answered)),  # others have about as many
            dialogue,
            on_text and (lambda sampled: on_text(self._completion(sampled).text)),
        )
        answers: list[tuple[Completion, ...]] = []
        try:
            self.decoder.update_weights()
            for number, group in enumerate(self.decoder.decode(request)):
                said = (observer.observations[number, g] if observer else () for g in range(len(group)))
                answers.append(tuple(map(self._completion, group, said)))
            stopped = False
        except Stopped:
            stopped = True
        if self.ranks.any(stopped):
            raise Stopped
        return self.ranks.gather(answers)

    def prompt_ids(self, question: Question) -> list[int]:
        """The question in this model's own format: its chat template, or plain lines where it has none. Tokens of its
        pictures are below 0. Raises `UserError` for pictures if the model reads only text."""
        vision, count = self.lm.vision, len(question.pictures)
        if vision is None and count:
            raise UserError(
                f"the task {question.id.task!r} shows pictures, and model '{self.name}' reads text alone: take a "
                "vision-language model, such as guppy-eye"
            )
        roles = tuple(message.role for message in question.chat)
        texts = [message.content for message in question.chat]
        if self._template.source in OWN:
            frame = self._template.frame(roles)
            if vision is not None:
                frame = ChatFrame((f"{vision.written}\n" * count, *frame.pieces))
        else:
            frame = self._template.frame(roles, pictures=count)
            if vision is not None:
                frame = ChatFrame(tuple(vision.in_text(p) if isinstance(p, str) else p for p in frame.pieces))
        ids = self._plain.framed(frame, texts)
        return ids if vision is None else vision.place(self.lm.model, ids, question.pictures)

    def completion_ids(self, completion: Completion) -> list[int]:
        """The completion's tokens. Own completions keep the tokens that were sampled. A peer's text is tokenised, with
        the end-of-sequence token if it ended by itself. A text longer than `max_completion_length` has no tokens here:
        the reward of the whole says nothing about its beginning."""
        return [id for turn in self._turn_ids(completion) for id in turn]

    def conversation_ids(self, question: Question, completion: Completion) -> tuple[list[int], dict[int, list[int]]]:
        """The policy's own tokens in a conversation, and the tokens that the environment says before some of them, by
        their numbers. Both are empty if a turn is longer than `max_completion_length`, or all than the model reads.
        Another node's may be no longer than own ones: an environment may have been made to say very much."""
        turns = self._turn_ids(completion)
        ids: list[int] = []
        observed: dict[int, list[int]] = {}
        for number, turn in enumerate(turns):
            if number:
                observed[len(ids)] = self._between.ids(completion.observations[number - 1])
            ids += turn
        most = self.context - len(self.prompt_ids(question))
        if completion.token_ids is None:
            most = min(most, self._room(question.turns))
        return (ids, observed) if len(ids) + sum(map(len, observed.values())) <= most else ([], {})

    def cost(self, questions: Sequence[Question], answers: Sequence[Sequence[Completion]]) -> tuple[int, float]:
        """What the `answers` to `questions` cost: the tokens that were read, of prompts and of what environments said
        between turns, and floating-point operations."""
        turns = [(c, self._turn_ids(c)) for group in answers for c in group]
        generated = sum(len(ids) for _, each in turns for ids in each)
        heard = (said for c, each in turns for said in c.observations[: max(0, len(each) - 1)])
        prompts = [self.prompt_ids(question) for question in questions]
        read = kept_tokens(prompts)
        read += sum(len(self._between.ids(said)) for said in heard)
        return read, Flops.of(self.lm.model).answering(read, generated)

    def control_strings(self) -> frozenset[str]:
        """The strings that no policy with this tokenizer writes (`shoal.policy.control`)."""
        return control_strings(self.lm.tokenizer)

    def save(self, folder: Path) -> None:
        """Writes the model. Only rank zero writes."""
        if self.ranks.is_zero:
            self.lm.save(folder)

    def _turn_ids(self, completion: Completion) -> list[list[int]]:
        """The tokens of each turn. None if one is too long, or has a stop token inside, which cannot be learned."""
        if completion.token_ids is not None:
            return by_turn(completion.token_ids, self.lm.stop_ids)
        texts = completion.turns if completion.observations else (completion.text,)
        turns = [self._plain.ids(text) for text in texts]
        for turn in turns:
            while turn and turn[-1] in self.lm.stop_ids:
                turn.pop()
            if self.lm.stop_ids.intersection(turn):
                return []
            turn.append(self.lm.eos_id)
        if completion.finish_reason == FinishReason.length:
            turns[-1].pop()
        return turns if max(map(len, turns)) <= self.sampling.max_completion_length else []

    def _completion(self, sampled: Sampled, observations: Sequence[str] = ()) -> Completion:
        reason = FinishReason.stop if sampled.stopped else FinishReason.length
        parts = tuple(map(Part, self._texts(sampled.token_ids)))
        return Completion(parts, reason, tuple(sampled.token_ids), tuple(sampled.logps), tuple(observations))

    def _texts(self, token_ids: Sequence[int]) -> tuple[str, ...]:
        """The text of each turn."""
        tokenizer: Any = self.lm.tokenizer
        bodies = [t[:-1] if t and t[-1] in self.lm.stop_ids else t for t in by_turn(token_ids, self.lm.stop_ids)]
        return tuple(
            tokenizer.decode(body, skip_special_tokens=True, clean_up_tokenization_spaces=False) for body in bodies
        )

    def _room(self, turns: int) -> int:
        """The most tokens of a conversation of so many turns."""
        return turns * (self.sampling.max_completion_length + OBSERVED)

    @cached_property
    def _between(self) -> Between:
        """Raises `UserError` for a chat template that takes no second turn."""
        if self._template.source == LINES:
            frame = self._template.frame(("user",))
        else:
            frame = after_answer(self._template.frame(("user", "assistant", "user")))
        return Between(self._plain, frame, self.lm.stop_ids)
