"""Where a swarm is, by the words of a command: addresses, or an invitation, which `shoal_host` reads."""

from collections.abc import Sequence
from typing import Any, Final

from shoal.config.load import merged
from shoal.config.own_code import call_offered, offered
from shoal.errors import UserError

INVITATIONS: Final = "shoal.invitations"
"""Entry points: `show` prints what an invitation says; `settings` takes what `swarm_settings` does."""


def is_invitation(word: str) -> bool:
    """Whether `word` is meant as an invitation; it may be damaged, or have words before it."""
    return any(part.startswith("shoal:") for part in word.lower().split())


def swarm_settings(words: Sequence[str], given: dict[str, Any], quiet: bool = False) -> dict[str, Any]:
    """The settings `given` over those that `words` say: addresses, or an invitation alone. Of that it is shown first
    who hosts the swarm and what it asks for, unless `quiet`, and the flags may not say the same. Raises `UserError`."""
    if any(map(is_invitation, words)):
        return dict(by_invitation("settings", words, given, quiet))
    return merged({"network": {"connect": words}} if words else {}, given)


def by_invitation(what: str, *arguments: Any) -> Any:
    """Calls an entry point of `INVITATIONS`. Raises `UserError`."""
    if what not in offered(INVITATIONS):
        raise UserError("an invitation needs the package shoal_host, which is not installed")
    return call_offered(INVITATIONS, what, *arguments)
