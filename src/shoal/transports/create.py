"""Which transport a node has: `network.transport`."""

from __future__ import annotations

from shoal.config.own_code import make_part
from shoal.config.sections import NetworkConfig
from shoal.transports.base import Transport, TransportContext


def create_transport(network: NetworkConfig, context: TransportContext) -> Transport:
    """The transport of a node, opened. Raises `UserError` for settings that cannot be used."""
    if own := _own(network):
        return make_part(own, "transport", Transport, network, context)  # type: ignore[type-abstract]
    return _built_in(network.transport)(network, context)


def check_transport(network: NetworkConfig) -> None:
    """Raises `UserError` for settings that cannot be used, before anything is loaded."""
    if not _own(network):
        _built_in(network.transport).check(network)


def _own(network: NetworkConfig) -> str:
    return network.transport if ":" in network.transport else ""


def _built_in(name: str) -> type[Transport]:
    if name == "memory":
        from shoal.transports.memory import MemoryTransport

        return MemoryTransport
    if name == "folder":
        from shoal.transports.folder import FolderTransport

        return FolderTransport
    from shoal.transports.zenoh.transport import ZenohTransport

    return ZenohTransport
