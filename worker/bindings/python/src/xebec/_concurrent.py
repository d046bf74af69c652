"""Predictions that run beside each other: several threads, or coroutines of one event loop.

The worker's loop receives requests on the main thread and hands each to an executor, which answers it from a thread of
its own. The gateway sends at most as many batches as the model evaluates at once, and one more, so nothing queues here
for long.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._check import is_async
from ._tensors import Error

_clock = time.perf_counter_ns


class Threads:
    """Calls predict on up to n threads."""

    def __init__(self, n: int, lost: Callable[[BaseException], Any]) -> None:
        self._pool, self._lost = ThreadPoolExecutor(n, thread_name_prefix="xebec"), lost

    def submit(self, worker: Any, q: tuple[int, ...], maps: Any) -> None:
        """Answers the request on another thread."""
        self._pool.submit(self._run, worker, q, maps)

    def _run(self, worker: Any, q: tuple[int, ...], maps: Any) -> None:
        try:
            worker.predict(q, maps)
        except BaseException as e:
            self.end(self._lost, e)

    @staticmethod
    def end(lost: Callable[[BaseException], Any], e: BaseException) -> None:
        """Ends the process: on this thread nobody would see the exception, and the batch would never be answered."""
        try:
            lost(e)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def wait(self) -> None:
        """Returns when every request that was submitted is answered."""
        self._pool.shutdown()


class Coroutines(Threads):
    """Calls an async predict on one event loop, which has a thread of its own. Up to n calls are under way."""

    def __init__(self, n: int, predict: Callable[..., Any], lost: Callable[[BaseException], Any]) -> None:
        self._predict, self._lost, self._n = predict, lost, n
        self._slots: Any = None
        self._loop = asyncio.new_event_loop()
        self._open: set[Any] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="xebec-asyncio", daemon=True)
        self._thread.start()

    def submit(self, worker: Any, q: tuple[int, ...], maps: Any) -> None:
        future = asyncio.run_coroutine_threadsafe(self._answer(worker, q, maps), self._loop)
        self._open.add(future)
        future.add_done_callback(self._open.discard)

    async def _answer(self, worker: Any, q: tuple[int, ...], maps: Any) -> None:
        try:
            # Before Python 3.10 a semaphore belongs to the loop of the thread that makes it.
            self._slots = self._slots or asyncio.Semaphore(self._n)
            async with self._slots:
                worker.begins(q)
                started = _clock()
                try:
                    arguments = worker.arguments(q, maps)
                except Error as e:  # parameters
                    worker.answer(q, maps, e, 0)
                    return
                try:
                    returned = await self._predict(*arguments)
                except BaseException as e:
                    returned = e
                worker.answer(q, maps, returned, _clock() - started)
        except BaseException as e:
            self.end(self._lost, e)

    def wait(self) -> None:
        for future in list(self._open):
            future.exception()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def executor(predict: Callable[..., Any], concurrency: int, lost: Callable[[BaseException], Any]) -> Threads:
    """What runs the predictions of a model with concurrency, or with an async predict."""
    return Coroutines(concurrency, predict, lost) if is_async(predict) else Threads(concurrency, lost)
