"""Settings of `[swarm]` and `[network]`: what nodes share and how they meet."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from shoal.config.display_name import fault
from shoal.config.section import Section

TRANSPORTS: Final = ("zenoh", "folder", "memory")
"""Beside those of one's own."""


class SwarmConfig(Section):
    """What nodes share and what they take."""

    nodes: int = Field(4, ge=1)
    """Nodes in this process."""
    local: int = Field(4, ge=0)
    """I: own rollouts in each update."""
    external: int = Field(4, ge=0)
    """J: other nodes' rollouts in each update. There are fewer if the pool has fewer live ones."""
    questions_per_round: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Questions that a node answers in each round. auto: I. If there are more, live ones are learned from first."""
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Processes that hold this run's models; 0: none but this one. auto: one for each core, on a CPU, for models of at
    most 200 million parameters that fit into memory, in a run that takes longer than the processes take to start."""


class NetworkConfig(Section):
    """How a node of `shoal join` reaches its swarm."""

    swarm: str = "lagoon"
    """Name of the swarm: up to 64 letters, digits, dots, - and _."""
    transport: str = "zenoh"
    """How messages travel. zenoh: over the network, by relays or within a local one; folder: through a folder that all
    nodes see, which `connect` names; memory: within this process; module:attribute: a transport of your own
    (docs/extend/transport.md). All other settings but swarm, connect, secret_file, display_name and peer_rate are
    zenoh's."""
    connect: list[str] = []
    """Relays or nodes to connect to: HOST:PORT, tcp/HOST:PORT or tls/HOST:PORT. If neither
    `connect` nor `listen` is set, the node finds others on its local network. With the transport folder: the folder."""
    listen: list[str] = []
    """Addresses where other nodes can connect to this one (tcp/0.0.0.0:7447), not together with `connect`. If empty, a
    free port."""
    lan: bool = True
    """Find nodes on the local network by multicast. It has no effect if `connect` or `listen` is set."""
    secret_file: str = ""
    """A file with the secret of a private swarm, the same for all its nodes."""
    tls_ca: str = ""
    """Certificate (PEM) of the authority that signed the relay's certificate, if the system does not know it."""
    tls_certificate: str = ""
    """This node's own certificate (PEM), for relays that ask for one (mutual TLS)."""
    tls_key: str = ""
    """The key (PEM) of `tls_certificate`."""
    display_name: str = ""
    """What people see beside the name of this node's key, such as the name of its owner. It proves nothing: anybody may
    choose any name. Up to 32 letters of one script, digits, spaces, dots, -, _ and '."""
    peer_rate: float = Field(40.0, gt=0, allow_inf_nan=False)
    """Rollouts per second that are taken from one key. What is above is refused and counted."""

    @field_validator("transport")
    @classmethod
    def _check_transport(cls, name: str) -> str:
        if name not in TRANSPORTS and ":" not in name:
            raise ValueError(f"choose from {', '.join(TRANSPORTS)} and module:attribute")
        return name

    @field_validator("display_name")
    @classmethod
    def _check_display_name(cls, name: str) -> str:
        if name and (why := fault(name)):
            raise ValueError(why)
        return name
