"""Which transport a node has: `network.transport`."""

from typing import Any, Final

from shoal.config.own_code import find, make_named
from shoal.config.sections import NetworkConfig
from shoal.errors import UserError, in_brief
from shoal.transports.base import Transport, TransportContext

KNOWN: Final = {"zenoh": "shoal.transports.zenoh.transport:ZenohTransport"}
GROUP: Final = "shoal.transports"  # of entry points: those of installed packages


def create_transport(network: NetworkConfig, context: TransportContext) -> Transport:
    """The transport of a node, opened. Raises `UserError` for settings that cannot be used."""
    kind: Any = Transport  # an abstract class
    try:
        part: Transport = make_named(network.carrier, "transport", kind, KNOWN, GROUP, network, context)
    except UserError:
        raise
    except Exception as error:  # of its own code: a port is taken, an address is missing
        raise UserError(f"transport {network.carrier!r} cannot be made: {in_brief(error)}") from error
    return part


def check_transport(network: NetworkConfig) -> None:
    """Raises `UserError` for settings that cannot be used, before anything is loaded."""
    found = find(network.carrier, "transport", KNOWN, GROUP)
    if isinstance(found, type) and issubclass(found, Transport):
        if missing := ", ".join(sorted(found.__abstractmethods__)):
            raise UserError(f"transport {network.carrier!r} lacks {missing} (see shoal.transports.base.Transport)")
        found.check(network)
