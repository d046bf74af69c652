"""Which failed requests are sent again, and when."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

from ._errors import ConnectionFailed, Error

# Codes of queries that were not evaluated, or that another replica may answer. low_confidence would be the same again.
REPEATABLE = frozenset({"overloaded", "no_replica", "shutting_down", "model_removed", "unavailable", "replica_lost"})


@dataclass(frozen=True)
class Retry:
    """How requests are tried again.

    A request is sent at most ``attempts`` times, and not at all after its latency objective or timeout. The pause before
    attempt n is random,
    up to ``base * 2**(n-1)`` and ``cap`` seconds, and begins after what Retry-After says.

    The budget is for all requests of a client: each failure takes one of ``budget`` tokens, each success gives back
    ``refill``, and nothing is
    sent again while half of them or fewer are left. A gateway that is down thus gets few requests beyond those of its callers.
    """

    attempts: int = 3
    base: float = 0.05
    cap: float = 2.0
    budget: float = 10.0
    refill: float = 0.1


class Budget:
    """The tokens of one client, for any number of threads."""

    def __init__(self, retry: Retry, uniform: random.Random | None = None) -> None:
        self._retry = retry
        self._tokens = retry.budget
        self._lock = threading.Lock()
        self._random = uniform or random.Random()

    def succeeded(self) -> None:
        with self._lock:
            self._tokens = min(self._tokens + self._retry.refill, self._retry.budget)

    def pause(self, error: Error, attempt: int, remaining: float, idempotent: bool) -> float | None:
        """Returns the seconds to wait before the next attempt, or None if there is to be none. attempt counts from 1;
        remaining seconds are left."""
        if not (
            error.code in REPEATABLE or (isinstance(error, ConnectionFailed) and (idempotent or error.code == "not_connected"))
        ):
            return None
        with self._lock:
            self._tokens = max(self._tokens - 1, 0)
            spent = self._tokens <= self._retry.budget / 2
        if spent or attempt >= self._retry.attempts:
            return None
        pause = self._random.uniform(0, min(self._retry.cap, self._retry.base * 2 ** (attempt - 1))) + (error.retry_after or 0)
        return pause if pause < remaining else None
