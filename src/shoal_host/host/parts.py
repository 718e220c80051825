"""The parts of a host: which commands of shoal run, where, and after what."""

import socket
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import UserError
from shoal_host.host.keys import HostKeys
from shoal_host.host.settings import LOOPBACK, HostSettings, at
from shoal_web.serving.server import is_loopback


@dataclass(frozen=True)
class Part:
    """A command of shoal as a process of its own."""

    name: str
    words: tuple[str, ...]
    listens: str
    port: int
    shown: str
    """Its address, for people."""

    @property
    def _host(self) -> str:
        return self.listens.strip("[]")

    def check_port(self) -> None:
        """Raises `UserError` if another program listens there."""
        try:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            socket.create_server((self._host, self.port), family=family).close()
        except OSError as error:
            raise UserError(
                f"the {self.name} cannot have port {self.port} ({error.strerror}): stop what listens there, or choose "
                "other ports with --port N (N for the relay, the next ones for the other parts)"
            ) from None

    def is_ready(self, patience: float = 1.0) -> bool:
        """Whether it accepts connections."""
        host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(self._host, self._host)
        try:
            socket.create_connection((host, self.port), patience).close()
        except OSError:
            return False
        return True


def parts_of(folder: Path, settings: HostSettings, keys: HostKeys) -> list[Part]:
    """The parts in the order in which they start."""
    relay, judge, window, human = range(settings.port, settings.port + 4)
    public, pages, reached = settings.listens, settings.pages, settings.reached[0]
    to_relay, records = f"tls/{LOOPBACK}:{relay}", folder / "judge"
    page = flags(name=settings.reached, tls=keys.certificate)
    page += flags(secret_file=keys.secret_file) if keys.secret_file else []
    page += [] if is_loopback(pages) else flags(token_file=keys.token)

    certified = flags(certificate=keys.certificate, key=keys.certificate_key)
    words = ["relay", *flags(listen=f"tls/{public}:{relay}"), *certified]
    parts = [Part("relay", tuple(words), public, relay, f"tls/{at(reached, relay)}")]
    if not settings.unjudged:
        words = ["judge", *flags(listen=f"{public}:{judge}", data=records, suite=settings.suite, task=settings.only)]
        words += flags(answer=settings.answer)
        parts.append(Part("judge", tuple(words), public, judge, f"http://{at(reached, judge)}"))
    words = ["watch", "--serve", *flags(listen=at(pages, window)), *page]
    words += [] if settings.unjudged else flags(judge=records)
    words += ["--swarm", settings.swarm, to_relay]
    parts.append(Part("window", tuple(words), pages, window, f"http://{at(pages, window)}"))
    if settings.human:
        words = ["human", to_relay, "--no-open", *flags(listen=at(pages, human), home=folder / "human"), *page]
        words += flags(swarm=settings.swarm, suite=settings.suite, only=settings.only, answer=settings.answer)
        parts.append(Part("human", tuple(words), pages, human, f"http://{at(pages, human)}"))
    return parts


def flags(**values: object) -> list[str]:
    """`--name VALUE` for each; for a tuple once for each of its values."""
    return [
        word
        for name, value in values.items()
        for each in (value if isinstance(value, tuple) else (value,))
        for word in (f"--{name.replace('_', '-')}", str(each))
    ]
