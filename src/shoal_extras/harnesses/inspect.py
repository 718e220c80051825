"""Inspect asks a policy: a model of this process or an endpoint. Its logs are where Inspect writes them (`logs`, for
`inspect view`)."""

import os
import threading
from collections import Counter
from typing import Any

import anyio.to_thread
from inspect_ai import eval as inspect_eval
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, get_model, modelapi

from shoal.errors import UserError
from shoal.policy.decoders.base import Sampling
from shoal.policy.endpoint import EndpointPolicy
from shoal.policy.language import LanguagePolicy
from shoal.protocols import Policy
from shoal.rollout import FinishReason, Message, Question, QuestionId, seed_of
from shoal.untrusted import printable
from shoal_extras.harnesses.command import Asked, Figure

SPREADS = ("stderr", "std", "var")
"""Metrics that say how sure others are."""


@modelapi(name="shoal")
class PolicyAPI(ModelAPI):  # type: ignore[misc]
    """A policy as a model of Inspect. It is asked one question at a time."""

    def __init__(self, model_name: str, policy: LanguagePolicy | EndpointPolicy, seed: int = 0, **options: Any) -> None:
        super().__init__(model_name, config=GenerateConfig())
        self._policy = policy
        self._usual = policy.sampling
        self._seed = seed
        self._asked: Counter[tuple[Message, ...]] = Counter()
        self._lock = threading.Lock()

    def max_connections(self) -> int:
        return 1

    async def generate(
        self, input: list[ChatMessage], tools: list[Any], tool_choice: Any, config: GenerateConfig
    ) -> ModelOutput:
        """One answer. The task decides how it is decoded; what it does not say is as shoal's own settings say."""
        if tools:
            raise UserError("tasks with tools are not supported")
        prompt = tuple(Message(message.role, message.text) for message in input)
        return await anyio.to_thread.run_sync(self._answer, prompt, config)

    def _answer(self, prompt: tuple[Message, ...], config: GenerateConfig) -> ModelOutput:
        usual = self._usual
        with self._lock:
            self._policy.sampling = Sampling(
                usual.temperature if config.temperature is None else config.temperature,
                usual.top_p if config.top_p is None else config.top_p,
                config.max_tokens or usual.max_completion_length,
            )
            seed = seed_of(self._seed, *(text for m in prompt for text in (m.role, m.content)), self._asked[prompt])
            self._asked[prompt] += 1
            question = Question(QuestionId("inspect", "1", "", 0, 0), prompt)
            [group] = self._policy.generate([question], 1, seed)
        if not group:  # of an endpoint
            raise UserError(self._policy.trouble)
        text, reason = group[0].text, group[0].finish_reason
        stopped = any(stop in text for stop in config.stop_seqs or [])
        for stop in config.stop_seqs or []:
            text = text.partition(stop)[0]
        cut = "max_tokens" if reason == FinishReason.length and not stopped else "stop"
        return ModelOutput.from_content(self.model_name, text, stop_reason=cut)


def measure(policy: Policy, asked: Asked) -> list[Figure]:
    """The figures of all tasks, each with its standard error. Raises `UserError`."""
    if not isinstance(policy, LanguagePolicy | EndpointPolicy):
        raise UserError("--harness inspect asks a model or an endpoint")
    if asked.include_path is not None or asked.examples is not None:
        raise UserError("--include-path and --examples are for --harness lm-eval")
    model = get_model(f"shoal/{policy.name}", memoize=False, policy=policy, seed=asked.seed or 0)
    usual = policy.sampling
    try:
        # Inspect knows no absolute paths of files
        tasks = [os.path.relpath(task) if os.path.isabs(task) else task for task in asked.tasks]
        logs = inspect_eval(tasks, model=model, limit=asked.limit, display="none", log_level="error")
    except Exception as error:  # a task is somebody's code
        raise UserError(f"Inspect failed: {type(error).__name__}: {printable(str(error), 300)}") from error
    finally:
        policy.sampling = usual
    return [figure for log in logs for figure in _figures(log)]


def _figures(log: EvalLog) -> list[Figure]:
    if log.status != "success" or log.results is None:
        why = log.error.message if log.error else "it was stopped"
        raise UserError(f"Inspect's task {log.eval.task} failed: {printable(why, 300)}")
    figures = []
    for score in log.results.scores:
        found = score.metrics
        stderr = found["stderr"].value if "stderr" in found else None
        for name, metric in found.items():
            if name not in SPREADS:
                error = stderr if name in ("accuracy", "mean") else None
                figures.append(
                    Figure(log.eval.task, f"{score.name} {name}", score.scored_samples, float(metric.value), error)
                )
    return figures
