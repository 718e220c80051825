"""A relay: a Zenoh router that carries a swarm's messages between nodes that cannot reach each other.

    shoal relay                                             # on a machine that others can reach, port 7447
    shoal relay --exempt 203.0.113.7                        # lets the relay at this address connect
    shoal relay --connect relay.example.org:7447            # a second relay, which knows the first and is exempt there
    shoal join relay.example.org:7447                       # a node

It stores nothing and is trusted with nothing: every rollout is signed by its maker and checked by its reader. It
carries only keys of `shoal/**`, and bounds the size of messages. The `forwarder` in front of Zenoh bounds what one
address may do, for which Zenoh has no bounds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import Any

import zenoh

from shoal.errors import UserError
from shoal.transports.zenoh.session import BATCHES, MAX_MESSAGE, TransportOptions, base_config, open_config
from shoal_host.relay.forwarder import Forwarder, Limits

FILES = 4  # open files per session: both ends of the forwarder, Zenoh's, and one to spare
KEYS = ["shoal/**"]
STALL = 10_000  # microseconds that a session whose reader has no room for a declaration may last
MAX_BYTES = MAX_MESSAGE // 2  # of one message
ENVELOPE = 4096  # bytes of a message beside what it carries, such as its key expression
MESSAGES = ["put", "delete", "declare_subscriber", "query", "declare_queryable", "reply"]
"""What is carried. Nodes need no liveliness tokens, and each of these would cost all nodes that look."""


@contextmanager
def running_relay(options: TransportOptions, limits: Limits) -> Iterator[Callable[[], str]]:
    """Runs a relay. Gives a function that says how it stands in one line: uptime, connections, and refused ones by
    reason. Raises `UserError`, for instance for an address in use.

    with running_relay(TransportOptions(listen=("tcp/0.0.0.0:7447",)), Limits()) as status:
        print(status())
    """
    started = time.monotonic()
    _allow_files(FILES * limits.sessions)
    with ExitStack() as stack:
        forwarder = stack.enter_context(closing(Forwarder(options, limits)))
        path = f"{stack.enter_context(TemporaryDirectory(prefix='shoal-relay-'))}/zenoh"
        session = stack.enter_context(open_config(relay_config(options, limits, path)))
        stack.callback(forwarder.close)  # before the session, which it uses

        def forget(key: str) -> None:
            """Makes Zenoh forget a key expression. It keeps all that somebody was interested in, until a subscriber to
            it leaves."""
            with suppress(zenoh.ZError):
                session.declare_subscriber(key, lambda sample: None).undeclare()

        def status() -> str:
            up = timedelta(seconds=int(time.monotonic() - started))
            refused = "".join(f", refused {number}: {why}" for why, number in forwarder.refused.most_common())
            return f"up {up}, connections: {forwarder.connections}{refused}"

        forwarder.start(path, forget)
        yield status


def relay_config(options: TransportOptions, limits: Limits, path: str) -> dict[str, Any]:
    """Zenoh's configuration for a relay that the forwarder reaches by the socket at `path`."""
    config = base_config(options)
    config["mode"] = "router"
    config["listen"]["endpoints"] = [f"unixsock-stream/{path}"]
    config["transport"]["link"]["protocols"].append("unixsock-stream")
    config["transport"]["unicast"] |= {"max_sessions": limits.sessions, "accept_pending": limits.sessions}
    link = config["transport"]["link"]
    link["rx"]["max_message_size"] = MAX_BYTES + ENVELOPE
    # All wait while one reader has no room for a declaration: so there is much room, and then its session is over.
    link["tx"]["queue"]["size"]["control"] = BATCHES
    link["tx"]["queue"]["congestion_control"] = {"block": {"wait_before_close": STALL}}
    config["adminspace"] = {"enabled": False}
    carried = {"messages": MESSAGES, "key_exprs": KEYS}
    config["access_control"] = {
        "enabled": True,
        "default_permission": "deny",
        "rules": [{"id": "shoal", "permission": "allow", "flows": ["ingress", "egress"], **carried}],
        "subjects": [{"id": "everybody"}],
        "policies": [{"rules": ["shoal"], "subjects": ["everybody"]}],
    }
    sent = {"key_exprs": KEYS, "flows": ["ingress"]}
    bounded = ["put", "delete", "query", "reply"]
    config["low_pass_filter"] = [{"id": "size", "messages": bounded, "size_limit": MAX_BYTES, **sent}]
    # Otherwise a sender could demand that all wait for the slowest reader.
    drop = {"congestion_control": "drop"}
    config["qos"] = {"network": [{"messages": ["put", "delete", "query"], "overwrite": drop, **sent}]}
    return config


def _allow_files(needed: int) -> None:
    """Lets this process open as many files as its connections need. Raises `UserError`."""
    if sys.platform == "win32":
        raise UserError("a relay needs Unix sockets: run it on Linux or macOS, or in Docker")
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UserError(f"so many sessions take {needed} open files, and this user may have {hard}: see ulimit -n")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
