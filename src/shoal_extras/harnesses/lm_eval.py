"""EleutherAI's harness (lm-eval) asks a model of this process.

The model is asked as shoal trains it: by its chat template where it has one. The template runs where all templates of
models run, in a process with limits (`policy.template`).
"""

from typing import Any

from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from shoal.errors import UserError
from shoal.policy.language import LanguagePolicy
from shoal.policy.template import chat_template
from shoal.protocols import Policy
from shoal.untrusted import printable
from shoal_extras.harnesses.command import Asked, Figure


class HarnessModel(HFLM):  # type: ignore[misc]
    """lm-eval's own model, with shoal's chat template."""

    def __init__(self, policy: LanguagePolicy) -> None:
        super().__init__(policy.lm.model, tokenizer=policy.lm.tokenizer, backend="causal", batch_size=8)
        self.template = chat_template(policy.lm.tokenizer, policy.name)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The chat as text. Without `add_generation_prompt`, its last text begins the answer."""
        assert self.template is not None
        chat = chat_history if add_generation_prompt else chat_history[:-1]
        frame = self.template.frame(tuple(message["role"] for message in chat))
        begun = "" if add_generation_prompt else chat_history[-1]["content"]
        return frame.text([message["content"] for message in chat]) + begun


def measure(policy: Policy, asked: Asked) -> list[Figure]:
    """The figures of all tasks, each with its standard error. Raises `UserError`."""
    if not isinstance(policy, LanguagePolicy):
        raise UserError(
            "lm-eval reads log-probabilities, which an endpoint does not give: take a model of this machine"
        )
    manager = TaskManager(include_path=str(asked.include_path) if asked.include_path else None)
    known = set(manager.all_tasks)
    missing = [task for task in asked.tasks if task not in known]
    if missing:
        raise UserError(f"lm-eval has no task {missing[0]!r}: `lm_eval ls tasks` has its own, --include-path yours")
    model = HarnessModel(policy)
    kinds = ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed")
    seeds = {} if asked.seed is None else dict.fromkeys(kinds, asked.seed)
    try:
        found = simple_evaluate(
            model,
            tasks=list(asked.tasks),
            task_manager=manager,
            num_fewshot=asked.examples,
            limit=asked.limit,
            apply_chat_template=model.template is not None,
            log_samples=False,
            **seeds,
        )
    except Exception as error:  # a task is somebody's code
        raise UserError(f"lm-eval failed: {type(error).__name__}: {printable(str(error), 300)}") from error
    return [figure for task in found["results"] for figure in _figures(task, found)]


def _figures(task: str, found: Any) -> list[Figure]:
    results = found["results"][task]
    samples = found["n-samples"].get(task, {}).get("effective")
    figures = []
    for key, value in results.items():
        metric, comma, filter = key.partition(",")
        if comma and not metric.endswith("_stderr") and isinstance(value, int | float):
            name = metric if filter == "none" else f"{metric} ({filter})"
            stderr = results.get(f"{metric}_stderr,{filter}")
            error = float(stderr) if isinstance(stderr, int | float) else None
            figures.append(Figure(task, name, samples, float(value), error))
    return figures
