"""Stands before a relay's Zenoh: who may connect, and how much one address may ask for.

    forwarder = Forwarder(options, limits)      # binds, so that an address in use is told at once
    forwarder.start("/run/relay.sock")      # forwards to Zenoh, on a thread of its own
    forwarder.refused                       # connections that were refused or cut, by reason
    forwarder.close()

Zenoh bounds all sessions together, but not those of one address, nor how much one of them declares; and each
declaration costs the relay a walk over all others. So this accepts the connections, counts them by address, reads what
each asks of the relay (`zenoh_wire`), and passes on whole messages. What comes back it passes on unread. It ends TLS.
QUIC does not pass here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from shoal.swarm.addresses import address_of
from shoal.swarm.transport import TransportOptions, cannot_listen
from shoal.swarm.zenoh_wire import Reader, Unreadable

logger = logging.getLogger(__name__)

HANDSHAKE = 10.0
"""Seconds in which a connection must be through its handshake."""
SILENCE = 60.0
"""Seconds after which a connection that says nothing is cut: a session says every few seconds that it is there."""
SETTLED = 1.0
"""Seconds after which Zenoh has done what a message or the end of a connection asks for."""
HELD = 2048
"""Declarations that one address may hold: a node has one for each neighbour, and a few. Each costs a walk over all."""
RATE, BURST = 100.0, 2048.0
"""Declarations of one address in a second, and at once; queries count for less (`zenoh_wire`). What is more waits."""
MESSAGE = 0.01
"""What any other message counts from an address that holds no declarations."""


@dataclass(frozen=True)
class Limits:
    """What may connect."""

    sessions: int = 1000
    """At a time."""
    address_sessions: int = 64
    """Of them, from one address; an IPv6 network of 64 bits counts as one."""
    exempt: frozenset[str] = frozenset()
    """Addresses of which nothing is counted: other relays, or a proxy in forwarder."""


class Visitor:
    """What one address has and asks for."""

    def __init__(self, now: float) -> None:
        self.connections = 0
        self.held = 0.0
        self._left, self._at = BURST, now

    def wait(self, now: float) -> float:
        """Seconds until it may ask for more."""
        self._left, self._at = min(BURST, self._left + RATE * (now - self._at)), now
        return max(0.0, -self._left / RATE)

    def spend(self, asked: float, messages: int) -> None:
        """It asked for this much, and sent other messages: each is compared with what is declared beside its key."""
        self._left -= asked + messages * MESSAGE * (1 + self.held / 64)

    def idle(self, now: float) -> bool:
        """Whether nothing is lost if it is forgotten."""
        return not self.connections and not self.wait(now) and self._left == BURST


class Forwarder:
    """Listens where `options` say, on tcp/ and tls/. Raises `UserError` where that cannot be."""

    def __init__(self, options: TransportOptions, limits: Limits) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self.visitors: dict[str, Visitor] = {}
        self.open: set[Outside] = set()
        self.path = ""
        self.loop = asyncio.new_event_loop()
        self.buffer = memoryview(bytearray(65536))
        self._connections = 0
        self._over: deque[tuple[float, str]] = deque()
        self._listeners: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._thread = threading.Thread(target=self.loop.run_forever, name="shoal-forwarder", daemon=True)
        context = _tls(options)
        for endpoint in forwarded(options):
            self._listeners.append((_listener(endpoint), context if endpoint.startswith("tls/") else None))

    def start(self, path: str, clean: Callable[[str], None]) -> None:
        """Lets connections in, to Zenoh's socket at `path`. `clean` makes Zenoh forget a key expression that nobody
        uses."""
        self.path, self._clean = path, clean
        self._tasks = [self.loop.create_task(self._accept(*listener)) for listener in self._listeners]
        self._tasks.append(self.loop.create_task(self._sweep()))  # the loop itself does not keep them
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(5.0)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(5.0)
        self.loop.close()
        for listener, _ in self._listeners:
            listener.close()

    async def _stop(self) -> None:
        for outside in list(self.open):
            outside.cut()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        greetings: set[asyncio.Task[None]] = set()
        while True:
            try:
                link, where = await self.loop.sock_accept(listener)
            except OSError:  # too many open files, for instance
                await asyncio.sleep(0.1)
                continue
            address = address_of(where[0])
            await asyncio.sleep(0)  # those who are in come first
            if not self._enter(address):
                link.close()
                continue
            greeting = self.loop.create_task(self._greet(link, address, context))
            greetings.add(greeting)
            greeting.add_done_callback(greetings.discard)

    def _enter(self, address: str) -> bool:
        visitor = self.visitors.get(address)
        if visitor is None:
            visitor = self.visitors[address] = Visitor(time.monotonic())
        if address not in self.limits.exempt and visitor.connections >= self.limits.address_sessions:
            self.refused["too many of one address"] += 1
            return False
        if self._connections >= self.limits.sessions:
            self.refused["too many"] += 1
            return False
        self._connections += 1
        visitor.connections += 1
        return True

    def leave(self, visitor: Visitor) -> None:
        """One connection of `visitor` is over."""
        self._connections -= 1
        visitor.connections -= 1

    async def _greet(self, link: socket.socket, address: str, context: ssl.SSLContext | None) -> None:
        """TLS, if there is any. What comes then is not waited for here."""
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds = HANDSHAKE if context else None
        try:
            await self.loop.connect_accepted_socket(
                lambda: Outside(self, address), link, ssl=context, ssl_handshake_timeout=seconds
            )
        except OSError as error:
            logger.debug("%s: %s", address, error)
            self.refused["no TLS"] += 1
            self.leave(self.visitors[address])
            link.close()

    def over(self, keys: list[str]) -> None:
        """Nobody is interested in these any more, as soon as Zenoh has seen it."""
        now = time.monotonic()
        self._over.extend((now, key) for key in keys)

    async def _sweep(self) -> None:
        """Cuts those who say nothing, and forgets addresses that left and what they were interested in."""
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            while self._over and now - self._over[0][0] > SETTLED:
                self._clean(self._over.popleft()[1])
                await asyncio.sleep(0)
            for outside in [each for each in self.open if each.silent(now)]:
                outside.cut("silent")
            for address in [address for address, visitor in self.visitors.items() if visitor.idle(now)]:
                del self.visitors[address]


class Outside(asyncio.BufferedProtocol):
    """A connection from outside, and its link to Zenoh, which it gets with its first whole message."""

    def __init__(self, forwarder: Forwarder, address: str) -> None:
        self.forwarder, self.address = forwarder, address
        self.visitor = forwarder.visitors[address]
        self.inside: asyncio.Transport | None = None
        self._reader = None if address in forwarder.limits.exempt else Reader()
        self._since = self._heard = time.monotonic()
        self._held = 0.0
        self._data = bytearray()
        self._stops: set[str] = set()
        """Why nothing is read at the moment."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.forwarder.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.forwarder.open.discard(self)
        self.forwarder.leave(self.visitor)
        if self._reader is not None:
            self._reader.close()
            self._count(self._reader)
        if self.inside is not None:
            self.inside.close()

    def get_buffer(self, hint: int) -> memoryview:
        return self.forwarder.buffer  # one for all: what comes is copied at once

    def buffer_updated(self, size: int) -> None:
        self._data += self.forwarder.buffer[:size]
        self.pass_on()

    def pass_on(self) -> None:
        """Passes on the whole messages that came, as far as the address may ask for them."""
        try:
            end = self._readable()
        except Unreadable as error:
            logger.debug("%s: %s", self.address, error)
            self.cut("not a session of Zenoh")
            return
        if self.visitor.held > HELD:
            self.cut("declares too much")
            return
        if end and self.inside is None:
            self._task = self.forwarder.loop.create_task(self._open())
            self.stop("opens")
        elif end and self.inside is not None:
            self.inside.write(bytes(self._data[:end]))
            del self._data[:end]

    def _readable(self) -> int:
        """Bytes of `_data` that may be passed on. Reads them; the first message is only read when there is a link."""
        data, at = self._data, 0
        if self._reader is None:
            return len(data)
        while len(data) - at > 2:
            end = at + 2 + int.from_bytes(data[at : at + 2], "little")
            if end > len(data):
                break
            if self.inside is None:
                return end
            wait = self.visitor.wait(time.monotonic())
            if wait:
                self.stop("asks too fast")
                self.forwarder.loop.call_later(wait, self.go_on, "asks too fast")
                break
            self.visitor.spend(self._reader.batch(bytes(data[at + 2 : end])), self._reader.messages)
            self._count(self._reader)
            self._heard = time.monotonic()
            at = end
        return at

    def _count(self, reader: Reader) -> None:
        """Takes over what the reader counted."""
        self.visitor.held += reader.holds - self._held
        self._held = reader.holds
        self.forwarder.over(reader.over)
        reader.over.clear()

    async def _open(self) -> None:
        try:
            await self.forwarder.loop.create_unix_connection(lambda: Inside(self), self.forwarder.path)
        except OSError as error:
            logger.debug("no link to Zenoh: %s", error)
            self.cut("too many")

    def stop(self, reason: str) -> None:
        """Reads nothing until `go_on`."""
        self._stops.add(reason)
        self.transport.pause_reading()

    def go_on(self, reason: str) -> None:
        self._stops.discard(reason)
        if not self._stops and not self.transport.is_closing():
            self.transport.resume_reading()
            self.pass_on()

    def pause_writing(self) -> None:
        if self.inside is not None:
            self.inside.pause_reading()

    def resume_writing(self) -> None:
        if self.inside is not None:
            self.inside.resume_reading()

    def silent(self, now: float) -> bool:
        """Whether it has not said for long what a session says."""
        late = self._reader is not None and not self._reader.greeted and now - self._since > HANDSHAKE
        return late or (self._reader is not None and now - self._heard > SILENCE)

    def cut(self, reason: str = "") -> None:
        if reason:
            self.forwarder.refused[reason] += 1
        self.transport.abort()


class Inside(asyncio.Protocol):
    """The link to Zenoh of one connection."""

    def __init__(self, outside: Outside) -> None:
        self.outside = outside

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self.outside.transport.is_closing():
            transport.abort()
            return
        self.outside.inside = transport
        self.outside.go_on("opens")

    def connection_lost(self, error: Exception | None) -> None:
        self.outside.transport.close()

    def data_received(self, data: bytes) -> None:
        self.outside.transport.write(data)

    def pause_writing(self) -> None:
        self.outside.stop("Zenoh is busy")

    def resume_writing(self) -> None:
        self.outside.go_on("Zenoh is busy")


def forwarded(options: TransportOptions) -> list[str]:
    """The endpoints that pass through here."""
    return [endpoint for endpoint in options.listen if not endpoint.startswith("quic/")]


def _listener(endpoint: str) -> socket.socket:
    host, _, port = endpoint.partition("/")[2].rpartition(":")
    host = host.strip("[]")
    try:
        family, *_, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(
            where[:2], family=family, backlog=1024, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6()
        )
    except OSError as error:
        raise cannot_listen(str(error), endpoint) from None
    listener.setblocking(False)
    return listener


def _tls(options: TransportOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if options.certificate and options.key:
        context.load_cert_chain(options.certificate, options.key)
    if options.mutual and options.ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(options.ca)
    return context
