"""Where a node or a relay connects and listens, and the Zenoh session for it.

    options = TransportOptions(connect=("relay.example.org:7447",))
    session = open_session(options)

Measurements on eclipse-zenoh 1.10.2 decided the modes:

- Beyond a LAN a node is a **client** of one relay of its list at a time. If that relay is killed, the session goes on
  with the next one at once, or with the same one when it is back. Relays know each other, so one is enough. A *peer*
  with links to two relays gets every message twice, or, with gossip, none.
- A node that listens, or finds others by multicast on its LAN, is a **peer**: it forwards between the clients that
  connect to it, and peers that find each other by multicast form a full mesh.
- **Gossip**, by which peers would tell each other of peers, is off: Zenoh believes what it is told, and one such
  message with a large number in it ends a process. So a node that listens does not also connect to others.
- A client does not open while no relay answers (`Unreachable`: try again later). A peer does, and keeps trying.
"""

import contextlib
import json
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zenoh

from shoal.config.sections import NetworkConfig
from shoal.errors import UserError
from shoal.transports.base import Unreachable
from shoal.untrusted import printable

MAX_MESSAGE = 1 << 20  # bytes of the largest message that is assembled from fragments; larger ones are dropped
LIMITS = b"shoal relay: "  # and why it lets nobody in: what it says to connections that it does not take
WHY = b"shoal relay?"  # asks it why it cut a connection from this address
BATCHES = 16  # batches of 64 KiB that may wait on a link for each priority: the most that Zenoh allows
PATIENCE = 500_000  # microseconds that a node's sending thread waits for a congested link before it drops a message
ANY_ADDRESS = "tcp/0.0.0.0:0"  # any free port of all addresses, where others come by multicast, which is of IPv4

TLS_FILES = ("ca.pem", "certificate.pem", "key.pem")  # what a folder with certificates has of these
_ENDPOINT = re.compile(r"(?:(tcp|tls)/)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


@dataclass(frozen=True)
class TransportOptions:
    """The endpoints and certificates of a node or relay. Raises `UserError` for what cannot be used.

    Endpoints are `tcp/HOST:PORT` or `tls/HOST:PORT`; `HOST:PORT` alone means tcp.
    """

    connect: tuple[str, ...] = ()
    """Relays, the preferred one first, or other nodes that listen."""
    listen: tuple[str, ...] = ()
    """Addresses where others can connect."""
    ca: Path | None = None
    """Certificate (PEM) of the authority that signs others' certificates. None: the public authorities."""
    certificate: Path | None = None
    """Own certificate (PEM), for a TLS listener or for a relay that asks for one."""
    key: Path | None = None
    """Private key (PEM) of `certificate`, without a password."""
    mutual: bool = False
    """Whether those who connect must show a certificate of `ca`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "connect", tuple(parse_endpoint(text) for text in self.connect))
        object.__setattr__(self, "listen", tuple(parse_endpoint(text, listen=True) for text in self.listen))
        self._check_tls()

    @property
    def lan(self) -> bool:
        """Whether to find others by multicast on the LAN."""
        return not self.connect and not self.listen

    @property
    def mode(self) -> str:
        """Zenoh's mode of a node with these endpoints. Raises `UserError` where only a relay can have them."""
        if self.connect and self.listen:
            raise UserError("a node connects to others or listens for them, not both: leave `listen` out")
        return "client" if self.connect else "peer"

    @property
    def protocols(self) -> list[str]:
        """The protocols in use. No links with other protocols are made or accepted."""
        return sorted({endpoint.partition("/")[0] for endpoint in (*self.connect, *self.listen)} or {"tcp"})

    def _check_tls(self) -> None:
        secure = any(endpoint.startswith("tls/") for endpoint in (*self.connect, *self.listen))
        if not secure and (self.ca or self.certificate or self.key or self.mutual):
            raise UserError("certificates are for tls/HOST:PORT; these endpoints have no encryption")
        if (self.certificate is None) != (self.key is None):
            raise UserError("a certificate and its private key go together: give both or neither")
        if self.certificate is None and any(endpoint.startswith("tls/") for endpoint in self.listen):
            raise UserError("listening on tls/ takes a certificate and its private key")
        if self.mutual and self.ca is None:
            raise UserError("asking others for a certificate takes the certificate of their authority (ca)")
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            if self.ca:
                context.load_verify_locations(self.ca)
            if self.certificate and self.key:
                context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            given = ", ".join(str(path) for path in (self.ca, self.certificate, self.key) if path)
            raise UserError(f"{given}: not usable as PEM certificates with a matching key ({error})") from None


def options_of(network: NetworkConfig) -> TransportOptions:
    """The endpoints and certificates in the settings. Raises `UserError`."""
    ca, certificate, key = tls_files(Path(network.tls)) if network.tls else (None, None, None)
    return TransportOptions(tuple(network.connect), tuple(network.listen), ca=ca, certificate=certificate, key=key)


def tls_files(path: Path) -> tuple[Path | None, Path | None, Path | None]:
    """The certificate of an authority, one's own, and its key, as far as `path` has them: a file with the first, or a
    folder. Raises `UserError` for a folder without any."""
    if not path.is_dir():
        return path, None, None
    ca, certificate, key = (file if file.is_file() else None for file in map(path.joinpath, TLS_FILES))
    if not (ca or certificate or key):
        raise UserError(f"{path} has none of {', '.join(TLS_FILES)}")
    return ca, certificate, key


def parse_endpoint(text: str, listen: bool = False) -> str:
    """`text` as Zenoh writes it. Raises `UserError` with an example."""
    match = _ENDPOINT.fullmatch(text.strip())
    port = int(match[3]) if match else -1
    if match is None or not (0 if listen else 1) <= port <= 65535:
        example = "tcp/0.0.0.0:7447" if listen else "tcp/relay.example.org:7447"
        raise UserError(
            f"'{text}' is no endpoint: write HOST:PORT, tcp/HOST:PORT or tls/HOST:PORT, as {example} "
            f"(IPv6: tcp/[::1]:7447)"
        )
    return f"{match[1] or 'tcp'}/{match[2]}:{port}"


def node_config(options: TransportOptions) -> dict[str, Any]:
    """Zenoh's configuration for a node."""
    config = base_config(options)
    config["mode"] = options.mode
    config["transport"]["link"]["tx"]["queue"]["congestion_control"] = {
        "drop": {"wait_before_drop": PATIENCE, "max_wait_before_drop_fragments": PATIENCE}
    }
    if options.mode == "client":
        # For the first attempt alone: once open, the session reconnects by itself.
        config["connect"]["timeout_ms"] = 0
    else:
        config["listen"]["endpoints"] = list(options.listen) or [ANY_ADDRESS]
    return config


def base_config(options: TransportOptions) -> dict[str, Any]:
    """What nodes and relays have in common, above all the limits on what others may cost."""
    tls: dict[str, Any] = {"enable_mtls": options.mutual or (not options.listen and options.certificate is not None)}
    if options.ca:
        tls["root_ca_certificate"] = str(options.ca)
    if options.certificate:
        for side in ("listen", "connect"):
            tls[f"{side}_certificate"] = str(options.certificate)
            tls[f"{side}_private_key"] = str(options.key)
    return {
        "connect": {
            "endpoints": list(options.connect),
            "retry": {"period_init_ms": 500, "period_max_ms": 4000, "period_increase_factor": 2},
        },
        "listen": {"endpoints": list(options.listen)},
        "scouting": {"multicast": {"enabled": options.lan}, "gossip": {"enabled": False}},
        "queries_default_timeout": 5000,
        "transport": {
            "unicast": {"accept_pending": 100},
            "link": {
                "protocols": options.protocols,
                "rx": {"max_message_size": MAX_MESSAGE},
                "tx": {"queue": {"size": {"data": BATCHES}}},
                "tls": tls,
            },
            # A stranger on the same machine is still a stranger.
            "shared_memory": {"enabled": False},
        },
    }


def open_session(options: TransportOptions) -> zenoh.Session:
    """A session for a node. A client may wait 10 seconds for a relay that swallows packets.

    Raises `Unreachable` for a client without a relay, `UserError` for what the user can fix.
    """
    return open_config(node_config(options))


def open_config(config: dict[str, Any]) -> zenoh.Session:
    """A session of this configuration. Raises as `open_session` does."""
    try:
        return zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
    except zenoh.ZError as error:
        # Zenoh adds a place in its source.
        reason = re.sub(r"\s*\[?\bat /\S*.*", "", str(error), flags=re.DOTALL)
    endpoints = ", ".join(config["listen"]["endpoints"])
    if "Unable to connect" in reason:
        places = ", ".join(config["connect"]["endpoints"])
        if limit := limits_of(config["connect"]["endpoints"]):
            raise Unreachable(limit)
        why = ", or certificates do not fit (network.tls)" if "tls/" in places else ""  # Zenoh does not say which
        raise Unreachable(f"none of {places} answers{why}")
    raise cannot_listen(reason, endpoints)


def limits_of(endpoints: Sequence[str]) -> str:
    """Why the first relay that says so does not let this machine in, or lately cut a connection from it. It takes
    seconds."""
    for endpoint in endpoints[:4]:
        host, _, port = endpoint.partition("/")[2].rpartition(":")
        said, where = b"", (host.strip("[]"), int(port))
        with contextlib.suppress(OSError, ValueError), socket.create_connection(where, 2.0) as link:
            link.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                said = link.recv(200)
            link.sendall(WHY)
            said = said or link.recv(200)
        if said.startswith(LIMITS):
            why = printable(said[len(LIMITS) :].decode(errors="replace"), 120)
            return f"the relay {endpoint} limits this machine's address: {why}"
    return ""


def cannot_listen(reason: str, endpoints: str) -> UserError:
    """The error for the user if the system does not let a program listen, for this `reason`."""
    if "already in use" in reason:
        return UserError(f"another program listens on {endpoints} already: choose another port")
    if "assign requested address" in reason:
        return UserError(f"{endpoints} is no address of this machine: listen on 0.0.0.0 for all of its addresses")
    if "ermission denied" in reason:
        return UserError(f"this user may not listen on {endpoints}: choose a port above 1023")
    return UserError(f"the network cannot be opened: {reason}")
