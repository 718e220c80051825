"""Two nodes with one key draw the same questions and never hear each other. This lock notices the second one.

    with only_node(identity_path(), "lagoon"):
        ...

It raises `UserError` if another process of this machine is in the block.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from shoal.config.caches import alone


@contextmanager
def only_node(identity: Path, swarm: str) -> Iterator[None]:
    """Holds the identity in this file for one node of `swarm`, as long as the block or the process lasts.

    Raises `UserError` if another process of this machine holds it. Where the system or the disk has no file locks
    (Windows, some network disks), nothing is noticed.
    """
    busy = (
        f"another node of swarm '{swarm}' runs with the identity in {identity}, and two nodes with one identity "
        "never hear each other: give this one its own, for instance SHOAL_HOME=~/.shoal-2"
    )
    with ExitStack() as stack:
        with suppress(OSError):  # a folder that cannot be written to
            stack.enter_context(alone(identity.with_name(f"{identity.name}.{swarm}.lock"), busy=busy))
        yield
