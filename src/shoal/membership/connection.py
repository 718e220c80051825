"""A node's connection to a swarm of strangers: what it shares is signed, what comes is admitted, whatever carries it.

    connection = SwarmConnection(config, identity, kind="human")
    connection.share(rollouts)       # returns at once: a thread signs and sends
    connection.receive()             # returns at once: what other threads have admitted since the last call
    connection.need(live, wanted)    # once a round: more neighbours if the pool runs dry
    connection.close()

    share() -> outbox -> sender thread: sign, encrypt -> transport
    transport -> decrypt -> intake: check, score -> receive()

All queues are bounded and lose their oldest items, which are counted: training never waits for the network, nor the
network for training. Without a link a node trains alone, and it shares as soon as the link comes.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from shoal.admission.admission import Admission
from shoal.admission.bounded import Newest
from shoal.admission.intake import Intake
from shoal.admission.limits import AdmissionLimits
from shoal.admission.peers import Differing
from shoal.config.settings import Config
from shoal.identity.keys import Identity
from shoal.membership.notices import NoticeReader
from shoal.membership.settings import secret_of
from shoal.policy.control import ControlText
from shoal.rewards import Combined
from shoal.rollout import Rollout, Scored
from shoal.sandbox.examiner import Examiner
from shoal.transports.base import Channel, Presence, TransportContext, key_of
from shoal.transports.create import create_transport
from shoal.wire.notices import Limit, Limits, Notice, notice_of, seal_notice
from shoal.wire.rollouts import Kind, seal

OUTBOX = 256  # own rollouts that wait for a link
TICK = 1.0  # seconds between two looks at who is there
CLOSE_TIMEOUT = 2.0  # seconds that `close` waits for what still has to be sent
SAID, LIMITERS = 3600.0, 64  # seconds for which it counts who limits this node, and how many of them


class SwarmConnection:
    """A node's place in a swarm. It is a `Swarm`; in addition it has `need`, `tell`, `status` and `close`.

    Raises `UserError` for settings that cannot be used. It is no error that nobody answers.
    """

    def __init__(
        self,
        config: Config,
        identity: Identity,
        *,
        kind: Kind = "model",
        model: str | None = None,
        rewards: Combined | None = None,
        limits: AdmissionLimits | None = None,
        neighbours: int | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        waits: bool = False,
        admission: Admission | None = None,
    ) -> None:
        """`kind`, `model`: what other nodes are told about this one. `rewards`: beside the verifier.
        `limits`: by default those of `config`. `neighbours`: how many peers to listen to at the start. `on_notice`:
        hears the notices of all nodes, on a thread of its own. `waits`: nothing is admitted until `start` is called.
        `admission`: in place of one made of all this."""
        self.config, self.identity = config, identity
        self.kind, self.model = kind, model
        self.swarm = config.network.name
        self.secret = secret_of(config)
        limits = limits or AdmissionLimits.of(config)
        self._max_bytes = limits.max_bytes
        self._examiners: list[Examiner] = []
        if admission is None:
            quick, patient = self._examiners = [Examiner(config.tasks), Examiner(config.tasks)]
            admission = Admission(
                self.swarm,
                quick,
                limits,
                num_generations=config.policy.num_generations,
                patient=patient,
                rewards=rewards,
                secret=self.secret,
                own=identity.public,
            )
        self.admission = admission
        self._intake = Intake(self.admission, self._admitted)
        self._on_notice = on_notice
        self._limited_by: dict[str, tuple[Notice, Limit]] = {}
        self._notices = NoticeReader(self.swarm, self.secret, self._heard)
        self._outbox: Newest[Rollout] = Newest(OUTBOX)
        self._told: Newest[bytes] = Newest(1)
        self._last: Notice | None = None
        self._sent, self._received = Counter(messages=0, bytes=0), Counter(messages=0, bytes=0)
        self._dropped: Counter[str] = Counter()
        self._lock = threading.Lock()  # for what is counted
        self._alone_since: float | None = time.time()
        self._closed = threading.Event()
        context = TransportContext(
            self.swarm,
            identity,
            self._arrived,
            self.secret,
            limits.max_bytes,
            hears_notices=on_notice is not None,
            neighbours=neighbours,
            clocks=self.admission.clocks,
        )
        self._prefix, self._address = context.prefix, context.address
        try:
            self.transport = create_transport(config.network, context)
        except BaseException:
            self._close_parts()
            raise
        self._sender = threading.Thread(target=self._send, name="shoal-send", daemon=True)
        self._sender.start()
        if not waits:
            self.start()

    @property
    def seed_key(self) -> tuple[str | int, ...]:
        return self.swarm, self.identity.id

    @property
    def dropped(self) -> Counter[str]:
        """Messages that did not even reach the admission, by reason: `size`, `repeated`, `secret`."""
        return self._dropped + self.transport.dropped

    @property
    def refused(self) -> int:
        return sum(self.admission.refused.values()) + self.dropped.total() + self._intake.lost

    @property
    def faults(self) -> int:
        """Errors of this program itself in the threads."""
        return self._intake.faults + self.transport.faults

    def start(self, tasks: Iterable[tuple[str, str, str]] = (), control: Iterable[str] = ()) -> None:
        """Examines what came in. `tasks`: the identities of this node's own tasks. `control`: the control tokens of its
        own model, as text."""
        self.admission.differing = Differing(tasks)
        self.admission.control = ControlText(control)
        self._intake.start()

    def share(self, rollouts: Sequence[Rollout]) -> None:
        self._outbox.put(rollouts)

    def tell(self, row: Mapping[str, Any], learned: Sequence[Mapping[str, Any]], limited: Limits) -> None:
        """Publishes for people who watch how a round went, whose rollouts it learned from (`notices`) and from whom it
        does not learn for a time."""
        display_name = self.config.network.display_name
        notice = notice_of(
            row, learned, self.swarm, self.identity.public, self.model, time.time(), display_name, limited
        )
        self._told.put([seal_notice(notice, self.identity, self.secret.context)])
        self._last = notice

    def receive(self) -> list[Scored]:
        return self._intake.take()

    def need(self, live: int, wanted: int) -> None:
        """Once a round: the pool has `live` rollouts with a gradient, and an update can use `wanted` (J)."""
        self.transport.need(live, wanted)

    def save(self, folder: Path) -> None:
        self.admission.save(folder)

    def load(self, folder: Path) -> None:
        self.admission.load(folder)

    def status(self) -> dict[str, Any]:
        """The state of connection and admission as plain data. Times are seconds since 1970. Neighbours are addresses:
        ids or, in a private swarm, hashes."""
        here, now = self._look(), time.time()
        with self._lock:
            limits = [(by.name, limit) for by, limit in self._limited_by.values() if now - by.time < SAID]
        clock = self.admission.clocks.warning
        nobody = "nobody with this secret is heard" if self.secret.private else "nobody else is in this swarm yet"
        silo = self._alone_since is not None
        state = f"alone: {here.trouble or clock or nobody}; training goes on" if silo else clock
        return {
            "time": now,
            "display_name": self.config.network.display_name,
            "swarm": self.swarm,
            "private": self.secret.private,
            "id": self.identity.id,
            "name": self.identity.name,
            "peers": here.peers,
            "neighbours": list(here.neighbours),
            "wanted": here.wanted,
            "links": here.links,
            "silo": silo,
            "silo_since": self._alone_since,
            "note": "; ".join(filter(None, (here.warning or state, self.admission.differing.line))),
            "warning": here.warning or clock,
            "sent": {**self._sent, "overflow": self._outbox.lost},
            "received": {**self._received, "overflow": self._intake.lost},
            "dropped": dict(self.dropped),
            "faults": self.faults,
            "code": bool(self.config.code),
            "first_fault": self.transport.first_fault,
            "admission": self.admission.status(),
            "limited_by": {name: (limit.rounds, limit.share) for name, limit in limits},
        }

    def close(self) -> None:
        """Sends what waits, for up to two seconds, and leaves."""
        if self._last:
            farewell = structs.replace(self._last, time=time.time(), learned=(), left=True)
            self._told.put([seal_notice(farewell, self.identity, self.secret.context)])
        self._closed.set()
        self._sender.join(CLOSE_TIMEOUT)
        self.transport.close()
        self._close_parts()

    def _close_parts(self) -> None:
        self._notices.close()
        self._intake.close()
        for examiner in self._examiners:
            examiner.close()

    def _seal(self, rollout: Rollout) -> bytes:
        """The signed bytes of an own rollout."""
        network, model = self.config.network, self.model and self.model[:256]
        said: dict[str, Any] = {"kind": self.kind, "display_name": network.display_name or None, "model": model}
        said |= {"not_kept": network.not_kept}
        return seal(rollout, self.identity, self.swarm, time.time(), context=self.secret.context, **said)

    def _send(self) -> None:
        """Sends what waits, and looks who is there."""
        looked = 0.0
        while not self._closed.is_set() or ((self._outbox or self._told) and self.transport.wait_open(0)):
            if time.monotonic() - looked > TICK:
                looked = time.monotonic()
                self._try("looking who is there", self._look)
            if not self.transport.wait_open(0.2):
                continue
            for rollout in self._outbox.take(0.2):
                self._try("sending a rollout", self._send_rollout, rollout)
            for notice in self._told.take():
                self._try("sending a notice", self._publish, "notices", notice)

    def _send_rollout(self, rollout: Rollout) -> None:
        self._count(self._sent, self._publish("rollouts", self._seal(rollout)))

    def _publish(self, channel: Channel, data: bytes) -> int:
        """Encrypts and publishes a message; how many bytes it has."""
        locked = self.secret.lock(key_of(self._prefix, channel, self._address), data)
        self.transport.publish(channel, locked)
        return len(locked)

    def _arrived(self, channel: Channel, address: str, data: bytes) -> None:
        """A message came; who sent it is not known yet. It must be quick."""
        if channel == "notices":
            return self._notices.put(address, data)
        self._count(self._received, len(data))
        reason, plain = "size", None
        if len(data) <= self._max_bytes:
            reason, plain = "secret", self.secret.unlock(key_of(self._prefix, channel, address), data)
        if plain is not None:
            self._intake.put(address, plain)
        else:
            with self._lock:
                self._dropped[reason] += 1

    def _heard(self, notice: Notice) -> None:
        """Keeps who says that it does not learn from this node."""
        mine = [each for each in notice.limited if each.maker == self.identity.name and not notice.left]
        with self._lock:
            self._limited_by.pop(notice.id, None)
            if mine and len(self._limited_by) < LIMITERS:
                self._limited_by[notice.id] = notice, mine[0]
        if self._on_notice:
            self._on_notice(notice)

    def _count(self, flow: Counter[str], size: int) -> None:
        with self._lock:
            flow.update(messages=1, bytes=size)

    def _admitted(self, id: str, scored: Scored) -> None:
        if scored.may_teach:
            self.transport.credit(id)

    def _look(self) -> Presence:
        """Who is there; notes since when this node is alone."""
        here = self.transport.presence()
        if here.links and here.peers:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.time()
        return here

    def _try(self, doing: str, work: Callable[..., object], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception:
            self.transport.fault(doing)
