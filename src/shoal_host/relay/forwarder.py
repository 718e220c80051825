"""Stands in front of a relay's Zenoh and limits what one address may do: connections, declarations and messages.

    forwarder = Forwarder(options, limits)      # binds at once, so that an address in use is noticed
    forwarder.start("/run/relay.sock", forget)  # forwards to Zenoh, on a thread of its own
    forwarder.refused                           # connections that were refused or cut, by reason
    forwarder.connections                       # how many there are
    forwarder.close()

Zenoh limits neither the sessions of one address nor how much one declares, which costs the relay a walk over all. So
the forwarder counts connections by address, reads what each asks of the relay (`zenoh_wire`), and passes on whole
messages of clients. Unread pass what the relay answers and what comes from named relays. It ends TLS."""

import asyncio
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.transports.zenoh.session import LIMITS, WHY, TransportOptions, cannot_listen
from shoal_host.addresses import address_of
from shoal_host.relay.zenoh_wire import NoClient, Reader, Unreadable

HANDSHAKE = 10.0  # seconds that the handshake of a connection may take
SILENCE = 60.0  # seconds after which a silent connection is cut: a session sends something every few seconds
SETTLED = 1.0  # seconds after which Zenoh has done what a message or the end of a connection asks for
HELD = 2048  # declarations that one address may hold: a node has one for each neighbour, and a few
RATE, BURST = 100.0, 2048.0
"""Declarations of one address per second, and at once; queries count for less (`zenoh_wire`). Further ones wait."""
SAID = 20  # lines about limited addresses in a minute
BUFFER = 1 << 15  # bytes that wait in each direction of a connection before it is stopped, and as many again
LIMITED = "limits "
"""How a line about an address that is refused or cut begins."""
MESSAGE = 0.01  # what any other message counts, from an address that holds no declarations


@dataclass(frozen=True)
class Limits:
    """What a relay accepts."""

    sessions: int = 1000
    """Connections at a time."""
    address_sessions: int = 64
    """Connections at a time from one address; an IPv6 network of 64 bits counts as one."""
    exempt: frozenset[str] = frozenset()
    """Addresses of other relays, which are trusted: nothing that comes from there is read or limited."""


class Streams(NamedTuple):
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Cut(Exception):  # noqa: N818 (it is a decision, not a fault)
    """The forwarder ends a connection, for this reason."""


class AddressUsage:
    """What one address has and asks for."""

    def __init__(self, now: float) -> None:
        self.connections = 0
        self.held = 0.0
        """The cost of its declarations."""
        self._left, self._at = BURST, now
        self.cut, self.cut_at = "", 0.0
        """Why a connection was cut last, and when."""

    def why(self, now: float) -> str:
        """Why a connection was cut lately."""
        return f"it cut a connection from here: {self.cut}" if self.cut and now - self.cut_at < SILENCE else ""

    def wait(self, now: float) -> float:
        """Seconds until it may ask for more."""
        self._left, self._at = min(BURST, self._left + RATE * (now - self._at)), now
        return max(0.0, -self._left / RATE)

    def spend(self, asked: float, messages: int) -> None:
        """It asked for this much, and sent this many messages: Zenoh compares each one with what is declared."""
        self._left -= asked + messages * MESSAGE * (1 + self.held / 64)

    def idle(self, now: float) -> bool:
        """Whether it can be forgotten."""
        return not self.connections and not self.wait(now) and self._left == BURST and not self.why(now)


class Forwarder:
    """Listens on the tcp/ and tls/ endpoints of `options`. Raises `UserError` where that is impossible."""

    def __init__(self, options: TransportOptions, limits: Limits) -> None:
        self.limits = limits
        self.refused: Counter[str] = Counter()
        self._said: dict[tuple[str, str], float] = {}
        self._addresses: dict[str, AddressUsage] = {}
        self.connections = 0
        self._over: deque[tuple[float, str]] = deque()
        """Keys that nobody is interested in any more, and since when."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shoal-forwarder", daemon=True)
        context = _tls(options)
        self._listeners = [(_listen(each), context if each.startswith("tls/") else None) for each in options.listen]

    def start(self, path: str, forget: Callable[[str], None]) -> None:
        """Accepts connections and forwards them to Zenoh's socket at `path`. `forget` makes Zenoh forget a key
        expression that nobody uses."""
        self._path, self._forget = path, forget
        for listener in self._listeners:
            self._begin(self._accept(*listener))
        self._begin(self._sweep())
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(5.0)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5.0)
        self._loop.close()
        for listener, _ in self._listeners:
            listener.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` as a task; the loop itself keeps no reference to it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        while True:
            try:
                link, where = await self._loop.sock_accept(listener)
            except OSError:  # too many open files, for instance
                await asyncio.sleep(0.1)
                continue
            address = address_of(where[0])
            await asyncio.sleep(0)  # open connections come first
            if why := self._enter(address):
                with suppress(OSError):
                    link.send(LIMITS + f"{why}; close connections from here, or wait".encode())
                link.close()
            else:
                self._begin(self._serve(link, address, context))

    def _enter(self, address: str) -> str:
        """Why no more connections of this address are accepted; empty if one is."""
        usage = self._addresses.setdefault(address, AddressUsage(time.monotonic()))
        if address not in self.limits.exempt and usage.connections >= self.limits.address_sessions:
            return self._refuse(address, "too many of one address")
        if self.connections >= self.limits.sessions:
            return self._refuse(address, "too many")
        self.connections += 1
        usage.connections += 1
        return ""

    def _refuse(self, address: str, why: str) -> str:
        """Counts it, returns it, and prints it: an address once a minute for each cause, at most `SAID` a minute."""
        self.refused[why] += 1
        now = time.monotonic()
        self._said = {what: at for what, at in self._said.items() if now - at < SILENCE}
        if why != "silent" and (address, why) not in self._said and len(self._said) < SAID:
            self._said[address, why] = now
            print(f"{LIMITED}{address}: {why}", flush=True)
        return why

    async def _serve(self, link: socket.socket, address: str, context: ssl.SSLContext | None) -> None:
        """Forwards one connection until it ends or is cut."""
        usage = self._addresses[address]
        reader = None if address in self.limits.exempt else Reader()
        node = zenoh = back = None
        try:
            if await self._asks(link):
                link.send(LIMITS + why.encode() if (why := usage.why(time.monotonic())) else b"")
                return
            node = await self._greet(link, context)
            batches = _chunks(node.reader) if reader is None else self._batches(node.reader, usage, reader)
            async for data in batches:
                if zenoh is None:  # only now: a connection that says nothing costs Zenoh nothing
                    zenoh = await self._connect()
                    back = self._begin(_carry_back(zenoh, node))
                zenoh.writer.write(data)
                await zenoh.writer.drain()
                await asyncio.sleep(0)  # others' turn
        except Cut as cut:
            why = self._refuse(address, str(cut))
            if node is not None:  # else it was never in: its certificates do not fit
                usage.cut, usage.cut_at = why, time.monotonic()
        except (asyncio.IncompleteReadError, OSError):  # it left
            pass
        finally:
            self.connections -= 1
            usage.connections -= 1
            if reader is not None:
                held = reader.declarations.cost
                reader.declarations.close()
                self._count(usage, reader, held)
            if back is not None:
                back.cancel()
            if zenoh is not None:
                zenoh.writer.close()
            if node is not None:
                node.writer.transport.abort()  # `close` would wait for a node that does not read
            else:
                link.close()

    async def _asks(self, link: socket.socket) -> bool:
        """Whether who connects asks why it was cut, instead of beginning a session or TLS."""
        there = asyncio.Event()
        self._loop.add_reader(link, there.set)
        try:
            await asyncio.wait_for(there.wait(), HANDSHAKE)
        except TimeoutError:
            raise Cut("silent") from None
        finally:
            self._loop.remove_reader(link)
        return link.recv(len(WHY), socket.MSG_PEEK) == WHY

    async def _greet(self, link: socket.socket, context: ssl.SSLContext | None) -> Streams:
        """The streams of a new connection, after its TLS handshake if there is one."""
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader(BUFFER)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, link, ssl=context, ssl_handshake_timeout=HANDSHAKE if context else None
            )
        except ConnectionResetError:  # it left
            link.close()
            raise
        except OSError:
            link.close()
            raise Cut("no TLS") from None
        return Streams(reader, asyncio.StreamWriter(transport, protocol, reader, self._loop))

    async def _connect(self) -> Streams:
        try:
            return Streams(*await asyncio.open_unix_connection(self._path, limit=BUFFER))
        except OSError:
            raise Cut("too many") from None

    async def _batches(
        self, stream: asyncio.StreamReader, usage: AddressUsage, reader: Reader
    ) -> AsyncGenerator[bytes, None]:
        """The batches of a connection, as fast as the limits of its address allow."""
        end = self._loop.time() + HANDSHAKE
        while True:
            try:
                async with asyncio.timeout_at(self._loop.time() + SILENCE if reader.batches > 2 else end):
                    size = await stream.readexactly(2)
                    batch = await stream.readexactly(int.from_bytes(size, "little"))
            except TimeoutError:
                raise Cut("silent") from None
            try:
                async with asyncio.timeout(SILENCE):  # others of its address may have used up what it has
                    while wait := usage.wait(time.monotonic()):
                        await asyncio.sleep(wait)
            except TimeoutError:
                raise Cut("too fast") from None
            held = reader.declarations.cost
            try:
                reader.batch(batch)
            except NoClient:
                raise Cut("a relay that --exempt does not name, or a node that listens") from None
            except Unreadable:
                raise Cut("not a session of Zenoh") from None
            finally:
                usage.spend(reader.cost, reader.messages)
                self._count(usage, reader, held)
            if usage.held > HELD:
                raise Cut("declares too much")
            yield size + batch

    def _count(self, usage: AddressUsage, reader: Reader, held: float) -> None:
        """Takes over from a reader, which held declarations of the cost `held` before, what changed."""
        usage.held += reader.declarations.cost - held
        now = time.monotonic()
        self._over.extend((now, key) for key in reader.declarations.over)
        reader.declarations.over.clear()

    async def _sweep(self) -> None:
        """Forgets idle addresses, and keys that nobody is interested in."""
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            while self._over and now - self._over[0][0] > SETTLED:
                self._forget(self._over.popleft()[1])
                await asyncio.sleep(0)
            self._addresses = {address: usage for address, usage in self._addresses.items() if not usage.idle(now)}


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    """What comes, unread."""
    while data := await reader.read(BUFFER):
        yield data


async def _carry_back(zenoh: Streams, node: Streams) -> None:
    """Forwards what Zenoh sends, until it ends the connection."""
    with suppress(OSError):
        async for data in _chunks(zenoh.reader):
            node.writer.write(data)
            await node.writer.drain()
    node.writer.close()


def _listen(endpoint: str) -> socket.socket:
    host, _, port = endpoint.partition("/")[2].rpartition(":")
    host = host.strip("[]")
    try:
        family, *_, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(
            where[:2], family=family, backlog=1024, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6()
        )
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
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
