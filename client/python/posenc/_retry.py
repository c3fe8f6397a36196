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

LONGEST_WAIT_FOR_READY = 1.0  # seconds between two looks for a server
_UNREACHED = "failed to connect", "DNS resolution failed"  # gRPC's words


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    max_attempts: int = 5  # including the first; 1: no retries
    initial_backoff: float = 0.1  # seconds
    max_backoff: float = 5.0
    multiplier: float = 4.0
    jitter: float = 0.2  # a wait is backoff * (1 - jitter .. 1 + jitter), so that clients do not retry together
    # Seconds to wait for a server that comes back, in each call, however many attempts that takes; a call's timeout is then
    # each attempt's. None: max_attempts within the call's timeout.
    total: float | None = None


class Retries:
    """The attempts of one call. `timeout`: seconds for all of them. `wait_for_ready`: no limit while no server is reached."""

    def __init__(self, policy: RetryPolicy, timeout: float, wait_for_ready: bool = False, address: str = ""):
        self._policy, self._timeout, self._wait_for_ready = policy, timeout, wait_for_ready
        begin, self._address = time.monotonic(), address
        self._end = begin + timeout  # of this attempt, or of all
        self._last = None if policy.total is None else begin + policy.total  # no attempt begins later
        self._attempts, self._backoff = 0, policy.initial_backoff
        self._unreached = False  # the last attempt found no server, so that nothing was sent
        self.said: list[str] = []  # what gRPC said of attempts that no server answered

    def remaining(self) -> float:
        """Seconds left, for an attempt's deadline."""
        return max(0.0, self._end - time.monotonic())

    def note_unanswered(self, message: str) -> None:
        """Notes what gRPC said of an attempt that no server answered."""
        self._unreached = message.startswith(_UNREACHED)
        if message not in self.said:
            self.said.append(message)

    def progress(self) -> None:
        """Counts attempts from the beginning: the last one has done a part of the work."""
        self._attempts, self._backoff = 0, self._policy.initial_backoff

    def wait_after(self, error: Error, pushback_ms: int | None, repeatable: bool) -> float:
        """Returns how long to wait before the next attempt, in seconds; raises the error if there is to be none."""
        waits_for_server, self._unreached = self._wait_for_ready and self._unreached, False
        self._attempts += not waits_for_server
        used_up = self._last is None and self._attempts >= self._policy.max_attempts
        if error.code != "UNAVAILABLE" or not repeatable or used_up:
            raise error
        if pushback_ms is not None:
            if pushback_ms < 0:
                raise error
            wait = pushback_ms / 1000
            self._backoff = self._policy.initial_backoff
        else:
            wait = self._backoff * (1 + self._policy.jitter * random.uniform(-1, 1))
            most = LONGEST_WAIT_FOR_READY if waits_for_server else self._policy.max_backoff
            self._backoff = min(self._backoff * self._policy.multiplier, most)
        if self._last is not None:
            if time.monotonic() + wait >= self._last:
                error.message += f"; waited {self._policy.total:g} s for {self._address} to come back"
                raise error
            self._end = time.monotonic() + wait + self._timeout
        elif wait >= self.remaining():  # sleeping past the deadline would only replace a specific error by a less specific one
            raise error
        return wait
