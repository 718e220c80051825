"""Settings of `[[rewards]]`: what answers are rewarded by. Each kind has its own fields.

[[rewards]]
kind = "function"
function = "my_rewards:short"

Installed packages add kinds to those of the core by entry points of the group `shoal.rewards`: the name is the kind,
and what it names is a subclass of `RewardSection` with the method `make` (docs/guides/rewards.md).
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from shoal.config.own_code import find, offered
from shoal.config.sections import Section
from shoal.errors import nearest
from shoal.untrusted import printable

GROUP: Final = "shoal.rewards"


class RewardSection(Section):
    """What every kind of reward has."""

    kind: str
    """Which kind it is."""
    name: str = ""
    """What figures call it; empty: its function's name, or its kind."""
    weight: float = Field(1.0, allow_inf_nan=False)
    """What it is multiplied by in the sum, as by TRL's `reward_weights`."""
    gate: bool = False
    """Multiply the sum of the others by it instead of adding it. With the verifier as a gate, a wrong answer has no
    reward, whatever other rewards say. A gate's weight has no effect."""

    @property
    def display_name(self) -> str:
        """What figures call it."""
        return self.name or self.kind

    def make(self, config: Any, placement: Any) -> Any:
        """The `shoal.rewards.Reward` of these settings.

        `config`: the run's `Config`. `placement`: where models compute (`shoal.policy.device.Placement`). Raises
        `UserError`."""
        raise NotImplementedError


class VerifierSection(RewardSection):
    """The tasks' own verifier."""


class FunctionSection(RewardSection):
    """A Python function as TRL's GRPOTrainer takes it."""

    function: str = Field(pattern=r"^[^:]+:[^:]+$")
    """`module:attribute`."""
    conversational: bool | Literal["auto"] = "auto"
    """Pass prompts and completions as chats, or as plain texts. auto: as TRL, as texts where the prompts of a data set
    are texts, otherwise as chats."""
    columns: dict[str, str] = {}
    """Arguments of the function and where their values come from: "task", "question" or a column of the task ("answer",
    "metadata"). For example { ground_truth = "answer" }."""
    timeout: float = Field(2.0, gt=0, allow_inf_nan=False)
    """Seconds for one completion. A call with n completions has 1 + n / 8 times as long; if it fails, each completion
    is tried alone."""
    guarded: bool = True
    """Deny the function files, sockets, processes and code made of text, and limit its memory. Without the guard it
    still runs in its own process."""

    @property
    def display_name(self) -> str:
        """As TRL does, by the function's own name."""
        return self.name or self.function.rpartition(":")[2]


CORE: Final[dict[str, type[RewardSection]]] = {"verifier": VerifierSection, "function": FunctionSection}
"""The kinds of the core."""


def kinds_of_reward() -> list[str]:
    """The kinds that there are here. Nothing is imported."""
    return [*CORE, *sorted(offered(GROUP))]


def reward_section(kind: str) -> type[RewardSection]:
    """The settings of a kind that there is. Raises `UserError` if a package's cannot be imported."""
    found: type[RewardSection] = CORE.get(kind) or find(kind, "kind of reward", {}, GROUP)
    return found


def _of_its_kind(given: Any) -> Any:
    """What a file says, as the section of its kind."""
    if isinstance(given, RewardSection):
        return given
    kinds = kinds_of_reward()
    if not (isinstance(given, dict) and isinstance(kind := given.get("kind"), str)):
        raise ValueError(f"write [[rewards]] with a kind; {nearest('', kinds)}")
    if kind not in kinds:
        raise ValueError(f"there is no kind of reward {printable(repr(kind), 120)}; {nearest(kind, kinds)}")
    return reward_section(kind).model_validate(given)


RewardSpec = Annotated[SerializeAsAny[RewardSection], BeforeValidator(_of_its_kind)]
"""An entry of `[[rewards]]`: `kind` says which."""
