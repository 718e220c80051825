"""What the settings say of a swarm, and whether they can be used."""

import re
from pathlib import Path

from shoal.admission.limits import AdmissionLimits
from shoal.config.policy import EMBEDDED
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.secret import OPEN, Secret, read_secret
from shoal.policy.named import named
from shoal.transports.base import check_name
from shoal.transports.create import check_transport


def check_network(config: Config) -> None:
    """Raises `UserError` for endpoints, certificates, names and secrets that cannot be used, and for rounds with
    more questions than others take. Nothing is loaded for that."""
    asked = config.round.local if config.round.questions_per_round == "auto" else config.round.questions_per_round
    if asked > AdmissionLimits.max_slots:
        raise UserError(f"others accept {AdmissionLimits.max_slots} questions of a round: lower --questions-per-round")
    check_transport(config.network)
    check_name(config.network.name)
    secret_of(config)


def secret_of(config: Config) -> Secret:
    """The secret of the swarm in the settings. Raises `UserError`."""
    network = config.network
    return read_secret(Path(network.secret_file), network.name) if network.secret_file else OPEN


def public_name(model: str) -> str | None:
    """A model's name as strangers may see it: a short name or one on the Hub, no path or address of this machine."""
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", model) and not Path(model).exists()
    return model if on_hub or model in EMBEDDED or named(model) else None
