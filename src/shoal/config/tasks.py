"""Settings of `[tasks]`: where questions come from and how answers are scored."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from shoal.config.answer_form import check_form
from shoal.config.sections import Section

DATA: Final = "data"
"""The name of the task that a data set is."""
PICTURES: Final = "pictures"
"""The suite whose questions show pictures."""
EASY: Final = {"pond": 16, "tagged": 32, "reef": 24, "games": 8, PICTURES: 16}
"""Suites with short answers: the longest completions, in tokens."""
SCORE_TIMEOUT: Final = 2.0


class TaskSpec(Section):
    """A source of questions."""

    name: str
    """A task of reasoning-gym, `data` for a data set (see docs/guides/data.md), an environment (see
    docs/guides/environments.md), or `module:attribute` of one's own (see docs/guides/tasks.md)."""
    parameters: dict[str, Any] = {}
    """The task's own parameters; what is not given has the task's default."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """How often the task is drawn, relative to the others."""
    answer: str = "whole"
    """What of a completion is the answer: whole (all of it), strict (all of it, and any word beside the answer makes it
    wrong), tag (in its last <answer> </answer>), boxed (in its last \\boxed{ }), last_number, last_line, or a regular
    expression with one group, such as "Answer: (.+)"."""
    examples: int = Field(0, ge=0, le=32)
    """Worked examples before the question: other questions of the task with their right answers. They are the same for
    all nodes and never held out."""
    score_timeout: float = Field(SCORE_TIMEOUT, gt=0, allow_inf_nan=False)
    """Seconds of processor time to score one completion, before it counts as 0. Of several tasks the longest holds."""
    system_prompt: str = ""
    """What is said before the question. It is this node's own: others may say something else, or nothing."""
    _check_answer = field_validator("answer")(check_form)

    @property
    def form(self) -> dict[str, Any]:
        """What makes another question of it, although the text is the same. A system prompt is each node's own."""
        return self.model_dump(include={"answer", "examples"}, exclude_defaults=True)


class TasksConfig(Section):
    """Where questions come from and how answers are scored."""

    suite: str = "pond"
    """Tasks: pond, tagged (easy ones for guppy), games (for guppy-games), pictures (for guppy-eye), reef (for small
    pretrained models) or paper (harder ones). pond: eight tasks that guppy can learn. tagged: those of pond, answered
    between tags. games: an environment answers back. pictures: five about small pictures. reef: seven tasks with three
    worked examples. paper: the nine tasks of the paper."""
    only: list[str] = []
    """Only this task of the suite. It can be given several times."""
    sources: list[TaskSpec] = []
    """Tasks of one's own in place of the suite (`[[tasks.sources]]` in a file)."""
    examples: Annotated[int, Field(ge=0, le=32)] | Literal["task"] = "task"
    """Worked examples before each question: other questions of the task with their
    right answers. They are the same for all nodes and never held out. task: what each task says, otherwise none."""
    answer: str = "task"
    """What of a completion is the answer: whole, strict (no word beside it), tag, boxed, last_number, last_line
    or a regular expression with one group. task: what each task says, otherwise whole."""
    partial_credit: bool = False
    """Give a task's own scores as they are, as the paper does; otherwise 1 for a full answer and 0 for all else."""

    @field_validator("answer")
    @classmethod
    def _check_answer(cls, form: str) -> str:
        return form if form == "task" else check_form(form)

    @property
    def score_timeout(self) -> float:
        """Seconds of processor time that scoring one completion may take."""
        return max((spec.score_timeout for spec in self.sources), default=SCORE_TIMEOUT)

    @property
    def code(self) -> list[str]:
        """The code of one's own that these tasks name."""
        return [spec.name for spec in self.sources if ":" in spec.name]
