"""Reports how far answering has come. `on_progress` may raise `Stopped`, which ends the answering.

with reporting(model, on_progress) as tell:      # called before each layer, too: a long pass can be ended
    tell(3)                          # three questions are answered

answers = finish(cancellable(work, on_progress, lambda: 3))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.protocols import OnProgress

T = TypeVar("T")

PAUSE: Final = 0.2
"""Seconds between two looks at what a server has answered."""


@contextmanager
def reporting(model: Any, on_progress: OnProgress | None) -> Iterator[OnProgress]:
    """Gives the function that takes the number of answered questions and passes it on to `on_progress`."""
    if on_progress is None:
        yield lambda answered: None
        return
    now = 0

    def tell(answered: int) -> None:
        nonlocal now
        now = answered
        on_progress(now)

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    hooks = [layer.register_forward_pre_hook(lambda *_: on_progress(now)) for layer in layers]
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


async def cancellable(work: Coroutine[Any, Any, T], on_progress: OnProgress | None, answered: Callable[[], int]) -> T:
    """The result of `work`. What `on_progress` raises cancels it."""
    task = asyncio.ensure_future(work)
    try:
        while on_progress is not None and not (await asyncio.wait([task], timeout=PAUSE))[0]:
            on_progress(answered())
        return await task
    finally:
        task.cancel()
