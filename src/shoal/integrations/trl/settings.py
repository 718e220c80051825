"""The settings of a trainer's node: those of shoal that the trainer does not have."""

from typing import Any, Final

from shoal.config.load import config_from_keywords
from shoal.config.names import from_keywords
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.membership.settings import check_network
from shoal.tasks.data.spec import keep_data
from shoal.tasks.suites import specs_of

SECTIONS: Final = {"seed", "tasks", "rewards", "selection", "network"}


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
    if any(spec.kind == "rankings" for spec in config.rewards):
        raise UserError("people's rankings are no reward of a trainer's node: use `shoal join`")
    specs_of(config.tasks)  # a mistyped name is reported before a model is loaded
    if network:
        check_network(config)
    return config
