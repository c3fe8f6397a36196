"""Retries: exponential backoff with jitter, bounded by attempts and by the call's time limit.

Every method is a function of its request, so a call that failed with UNAVAILABLE can be made again. The server's push-back
replaces the wait, and a negative one forbids another attempt. gRPC's own retries are off: they do not cover requests above
256 KiB.
"""

from __future__ import annotations

import dataclasses
import random
import time

from posenc.errors import Error


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    max_attempts: int = 5  # including the first; 1: no retries
    initial_backoff: float = 0.1  # seconds
    max_backoff: float = 5.0
    multiplier: float = 4.0
    jitter: float = 0.2  # a wait is backoff * (1 - jitter .. 1 + jitter), so that clients do not retry together


class Retries:
    """The attempts of one call. `timeout`: seconds for all of them."""

    def __init__(self, policy: RetryPolicy, timeout: float):
        self._policy, self._end = policy, time.monotonic() + timeout
        self._attempts, self._backoff = 0, policy.initial_backoff

    def remaining(self) -> float:
        """Seconds left, for an attempt's deadline."""
        return max(0.0, self._end - time.monotonic())

    def progress(self) -> None:
        """Counts attempts from the beginning: the last one has done a part of the work."""
        self._attempts, self._backoff = 0, self._policy.initial_backoff

    def wait_after(self, error: Error, pushback_ms: int | None, repeatable: bool) -> float:
        """Returns how long to wait before the next attempt, in seconds; raises the error if there is to be none."""
        self._attempts += 1
        if error.code != "UNAVAILABLE" or not repeatable or self._attempts >= self._policy.max_attempts:
            raise error
        if pushback_ms is not None:
            if pushback_ms < 0:
                raise error
            wait = pushback_ms / 1000
            self._backoff = self._policy.initial_backoff
        else:
            wait = self._backoff * (1 + self._policy.jitter * random.uniform(-1, 1))
            self._backoff = min(self._backoff * self._policy.multiplier, self._policy.max_backoff)
        if wait >= self.remaining():  # sleeping past the deadline would only replace a specific error by a less specific one
            raise error
        return wait
