"""Several processes (ranks) that act as one, as `torchrun` or `accelerate launch` starts them.

    with joined("auto") as ranks:             # ALONE if this process is not one of several
        answers = ranks.gather([answer(question) for question in ranks.mine(questions)])

All ranks run the same program with the same seeds. Costly work is divided among them. Only rank zero touches the world
(disk, display, verifier, network), and broadcasts its results. Every method but `mine` and `deal` is a collective call:
all ranks must make it, in the same order. A process alone needs no communication.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.errors import UserError
from shoal.untrusted import printable

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

BUCKET = 2**24
"""Elements that are summed in one message."""
PATIENCE = timedelta(days=1)
"""How long a rank waits for another: evaluation and checkpoints may take long. The loss of one that died is noticed at
once, and torchrun ends all of a machine."""


@dataclass(frozen=True)
class Ranks:
    """This process among those of its run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among those on this machine."""
    local_size: int = 1

    @property
    def is_zero(self) -> bool:
        """Whether this is rank zero, which writes, shows and scores."""
        return self.rank == 0

    def mine(self, items: Sequence[T]) -> list[T]:
        """This rank's part of `items`: every `size`-th."""
        return list(items[self.rank :: self.size])

    def deal(self, items: Sequence[T], cost: Callable[[T], int]) -> list[T]:
        """This rank's part of `items`, which may be empty; all parts cost about the same."""
        if self.size == 1:
            return list(items)
        hands: list[list[T]] = [[] for _ in range(self.size)]
        loads = [0] * self.size
        for item in sorted(items, key=cost, reverse=True):
            least = loads.index(min(loads))
            hands[least].append(item)
            loads[least] += cost(item)
        return hands[self.rank]

    def gather(self, part: list[T]) -> list[T]:
        """The parts of all ranks, in the order before `mine`."""
        if self.size == 1:
            return part
        parts = self.each(part)
        whole: list[Any] = [None] * sum(map(len, parts))
        for rank, items in enumerate(parts):
            whole[rank :: self.size] = items
        return whole

    def each(self, value: T) -> list[T]:
        """The values of all ranks, by rank."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: T) -> T:
        """Rank zero's value, on all ranks."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        values: list[Any] = [value if self.is_zero else None]
        dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[no-any-return]

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank."""
        return any(self.each(flag))

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replaces each of `tensors` by the sum over all ranks, the same to the bit on each."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        with torch.no_grad():
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                dist.all_reduce(flat)
                for tensor, summed in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                    tensor.copy_(summed.view_as(tensor))


ALONE = Ranks()


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """The ranks of this run, connected within the context. `device`: the setting `policy.device`.

    At the end all ranks wait for each other. An error on one rank ends its process, with the exit code of a single
    process, and each other rank when it next waits for that one. The rank that fails first reports the error, once.
    """
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        yield ALONE
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if size == 1:
        yield ALONE
        return
    import torch
    import torch.distributed as dist

    local = int(os.environ.get("LOCAL_RANK", rank)), int(os.environ.get("LOCAL_WORLD_SIZE", size))
    ranks = Ranks(rank, size, *local)
    cuda = device.startswith(("auto", "cuda")) and torch.cuda.is_available()
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=PATIENCE)
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    connect: Any = dist.TCPStore  # type: ignore[attr-defined]
    store = connect(address, port, is_master=False, wait_for_workers=False)
    try:
        ranks.each(None)  # all are connected before anybody can fail: rank zero takes the store with it
        yield ranks
        ranks.each(None)
    except BaseException as error:
        if _fails_first(store):
            _report(error, ranks)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_code(error))  # destructors would wait for the other ranks
    dist.destroy_process_group()


def _fails_first(store: Any) -> bool:
    """Whether this is the first rank that fails."""
    try:
        return bool(store.add(f"shoal/failed/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", 1) == 1)
    except RuntimeError:  # the store died with its rank
        return False


def leave(code: int) -> int:
    """Ends the process at once with `code` if it is one of several ranks; else returns `code`. Call it when all is
    written and closed: gloo's destructors may abort if another rank has ended before."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def is_rank_zero() -> bool:
    """Whether this process is rank zero, by the environment alone: known before any connection."""
    return os.environ.get("RANK", "0") == "0"


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Tensors of one type and device together, as many as a message holds."""
    bucket: list[torch.Tensor] = []
    for tensor in tensors:
        full = sum(t.numel() for t in bucket) + tensor.numel() > BUCKET
        if bucket and (full or (tensor.dtype, tensor.device) != (bucket[0].dtype, bucket[0].device)):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    return 2 if isinstance(error, UserError) else 130 if isinstance(error, KeyboardInterrupt) else 1


def _report(error: BaseException, ranks: Ranks) -> None:
    where = "" if ranks.is_zero else f"rank {ranks.rank}: "
    lost = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
    with contextlib.suppress(BrokenPipeError):
        if isinstance(error, UserError):
            print(f"shoal: {where}{printable(' '.join(str(error).splitlines()))}", file=sys.stderr)
        elif isinstance(error, KeyboardInterrupt):
            print("shoal: interrupted", file=sys.stderr)
        elif isinstance(error, RuntimeError) and any(sign in str(error) for sign in lost):
            print(f"shoal: rank {ranks.rank} has lost another rank, which was killed or crashed", file=sys.stderr)
        elif not isinstance(error, SystemExit):
            print(f"shoal: rank {ranks.rank}:", file=sys.stderr)
            traceback.print_exception(error)
