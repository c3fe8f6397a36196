"""What a task of posenc.aio does with a caller's memory when it is cancelled."""

import asyncio
import threading

import numpy as np
import pytest
from conftest import LLAMA

import posenc
import posenc.aio
from posenc._threads import in_thread

WATCHDOG = 60  # seconds
CALL = {"model": LLAMA, "positions": 3, "layout": "BSHD"}


async def cancel_and_look(start, memory, delay):
    """Returns whether the task was cancelled, and how many elements of the memory change afterwards."""
    task = asyncio.create_task(start())
    await asyncio.sleep(delay)
    task.cancel()
    results = await asyncio.gather(task, return_exceptions=True)
    memory[:] = 7
    await asyncio.sleep(0.05)
    return isinstance(results[0], asyncio.CancelledError), int((memory != 7).sum())


@pytest.mark.parametrize("method", ["rope", "rope_in_chunks"])
@pytest.mark.parametrize("where", ["local", "remote"])
def test_a_cancelled_task_writes_no_output_afterwards(server, method, where):
    q = np.random.default_rng(7).standard_normal((1, 8192, 8, 128)).astype(np.float32)
    out = np.zeros_like(q)

    async def work():
        open_one = posenc.aio.local() if where == "local" else posenc.aio.connect(f"127.0.0.1:{server.port}")
        async with open_one as client:
            def start():
                return getattr(client, method)(q, **CALL, out=[out])
            await start()
            return [await cancel_and_look(start, out, n / 2000) for n in range(30)]
    seen = asyncio.run(work())
    assert any(cancelled for cancelled, _ in seen)
    assert [changed for cancelled, changed in seen if cancelled and changed] == []


def test_a_cancelled_task_ends_its_computation():
    """The work in the thread is told, and waited for."""
    told, ended = threading.Event(), threading.Event()

    def work():
        told.wait(WATCHDOG)
        ended.set()

    async def run():
        task = asyncio.create_task(in_thread(work, told.set))
        await asyncio.sleep(0.05)
        task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended.is_set()
    assert asyncio.run(run())


def test_work_that_has_not_begun_never_does():
    """A cancelled task does not wait for other work of the threads."""
    begun, free = [], threading.Event()

    async def run():
        loop = asyncio.get_running_loop()
        others = [loop.run_in_executor(None, free.wait, WATCHDOG) for _ in range(100)]
        task = asyncio.create_task(in_thread(lambda: begun.append(1), lambda: None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not free.is_set()
        free.set()
        await asyncio.gather(*others)
    asyncio.run(run())
    assert begun == []


def test_a_long_call_in_process_ends_when_its_task_is_cancelled():
    """It would take minutes: exact tables of positions that do not repeat."""
    positions = np.random.default_rng(7).uniform(0, 1e6, 1 << 24)
    settings = {"rope_parameters": {"rope_type": "default"}, "rotary_dim": 64, "input_pairing": "HALF_SPLIT"}

    async def run():
        async with posenc.aio.local() as client:
            task = asyncio.create_task(client.table(settings=settings, positions=positions, dtype="FP64", form="HALF_WIDTH"))
            await asyncio.sleep(0.3)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=WATCHDOG)
            assert done and task.cancelled()
    asyncio.run(run())
