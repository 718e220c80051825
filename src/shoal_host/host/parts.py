"""The parts of a host: which commands of shoal run, where, and after what."""

import socket
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shoal.errors import UserError
from shoal.invitations.pinned import shown_certificate
from shoal_host.host.keys import HostKeys
from shoal_host.host.settings import LOOPBACK, HostSettings, at
from shoal_web.serving.server import is_loopback

QUIET: Final = "3600"
"""Seconds between the status lines in logs."""
FREED: Final = 5.0
"""Seconds in which the parts of a host that was killed free their ports."""


@dataclass(frozen=True)
class Part:
    """A command of shoal as a process of its own."""

    name: str
    words: tuple[str, ...]
    port: int
    shown: str
    """Its address, for people."""
    host: str = LOOPBACK
    """By which this machine reaches it."""
    health: str = ""
    """What answers once it is ready: a URL, or tls/HOST:PORT. "": it is ready when it accepts connections."""

    def is_ready(self, patience: float = 1.0) -> bool:
        """Whether it serves."""
        if self.health.startswith("tls/"):
            return shown_certificate(self.health, patience) is not None
        try:
            if not self.health:
                socket.create_connection((self.host, self.port), patience).close()
                return True
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy reaches this machine
            with opener.open(self.health, timeout=patience) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


def parts_of(folder: Path, settings: HostSettings, keys: HostKeys) -> list[Part]:
    """The parts in the order in which they start."""
    ports = range(settings.port, settings.port + 4)
    relay, judge, window, human = ports
    reached, to_relay = settings.reached[0], f"tls/{LOOPBACK}:{relay}"
    everywhere = settings.pages in ("0.0.0.0", "::")
    asks = not is_loopback(settings.pages)
    swarm = flags(tls=keys.certificate, **({"secret_file": keys.secret_file} if keys.secret_file else {}))
    page = [*flags(name=settings.reached), *flags(token_file=keys.token if asks else ()), *swarm]
    words = {
        "relay": [
            *flags(listen=f"tls/{settings.listens}:{relay}", status_every=QUIET),
            *flags(certificate=keys.certificate, key=keys.certificate_key),
        ],
        "judge": [
            *flags(listen=f"{settings.listens}:{judge}", data=folder / "judge"),
            *flags(suite=settings.suite, task=settings.only),
        ],
        "watch": [
            *("--serve", *flags(listen=at(settings.pages, window)), *page),
            *([] if settings.unjudged else flags(judge=folder / "judge")),
            *("--swarm", settings.swarm, to_relay),
        ],
        "human": [
            *(to_relay, "--no-open", *flags(listen=at(settings.pages, human), home=folder / "human"), *page),
            *flags(swarm=settings.swarm, suite=settings.suite, only=settings.only),
        ],
    }
    shown = (
        f"tls/{at(reached, relay)}",
        *(
            f"http://{at(each, port)}"
            for each, port in ((reached, judge), (settings.pages, window), (settings.pages, human))
        ),
    )
    return [
        Part(
            "window" if command == "watch" else command,
            (command, *given),
            port,
            where,
            host=settings.pages if command in ("watch", "human") and not everywhere else LOOPBACK,
            health={"relay": to_relay, "judge": f"http://{LOOPBACK}:{judge}/health"}.get(command, ""),
        )
        for (command, given), port, where in zip(words.items(), ports, shown, strict=True)
        if (command != "human" or settings.human) and (command != "judge" or not settings.unjudged)
    ]


def flags(**values: object) -> list[str]:
    """`--name VALUE` for each; for a tuple once for each of its values."""
    return [
        word
        for name, value in values.items()
        for each in (value if isinstance(value, tuple) else (value,))
        for word in (f"--{name.replace('_', '-')}", str(each))
    ]


def check_ports(parts: Sequence[Part], host: str) -> None:
    """Raises `UserError` if another program listens on a port of a part, unless it goes away soon."""
    end = time.monotonic() + FREED
    for part in parts:
        while not _is_free(host, part.port):
            if time.monotonic() > end:
                raise UserError(
                    f"another program listens on port {part.port}, which the {part.name} needs: stop that program, or "
                    f"choose other ports with --port N (N for the relay, the next ones for the other parts)"
                )
            time.sleep(0.1)


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), port), family=family).close()
    except OSError:
        return False
    return True
