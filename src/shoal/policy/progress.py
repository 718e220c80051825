"""Tells how far answering has come, and can be ended on the way: what it tells may raise `Stopped`.

with told(model, hear) as tell:      # hears before each layer, so that a long pass can be ended, too
    tell(3)                          # three questions are answered

answers = finish(told_of(work, hear, lambda: 3))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.protocols import Hear

T = TypeVar("T")

PAUSE: Final = 0.2
"""Seconds between two looks at what a server has answered."""


@contextmanager
def told(model: Any, hear: Hear | None) -> Iterator[Hear]:
    """Gives the function that takes the number of answered questions and passes it on to `hear`."""
    if hear is None:
        yield lambda answered: None
        return
    now = 0

    def tell(answered: int) -> None:
        nonlocal now
        now = answered
        hear(now)

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    hooks = [layer.register_forward_pre_hook(lambda *_: hear(now)) for layer in layers]
    try:
        yield tell
    finally:
        for hook in hooks:
            hook.remove()


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, also where this thread runs an event loop already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, work).result()


async def told_of(work: Coroutine[Any, Any, T], hear: Hear | None, answered: Callable[[], int]) -> T:
    """The result of `work`. What `hear` raises cancels it."""
    task = asyncio.ensure_future(work)
    try:
        while hear is not None and not (await asyncio.wait([task], timeout=PAUSE))[0]:
            hear(answered())
        return await task
    finally:
        task.cancel()
