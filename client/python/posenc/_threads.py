"""Work of coroutines in threads, which ends before the coroutine does: it may read and write a caller's memory."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any, TypeVar, cast

T = TypeVar("T")


async def in_thread(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """Returns work(), which runs in a thread while the event loop runs.

    If the task is cancelled, the work does not begin, or stop() is called, which lets it end soon, and its end is awaited.
    """
    begins = threading.Lock()  # whoever gets it first decides whether the work begins

    def begin() -> Any:
        return work() if begins.acquire(blocking=False) else None

    running = asyncio.get_running_loop().run_in_executor(None, begin)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not begins.acquire(blocking=False):
            stop()
            while not running.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            running.exception()  # nobody asks for it
        raise


async def in_threads(items: Iterator[T], stop: Callable[[], None] = lambda: None) -> AsyncIterator[T]:
    """Yields the items of a generator, each of which is computed in a thread."""
    try:
        while (item := await in_thread(lambda: next(items, None), stop)) is not None:
            yield item
    finally:
        cast("Generator[T, None, None]", items).close()
