"""Retries with back-off for calls of an LLM."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TypeVar

import tenacity

from llama_index_graph_rag.errors import GraphRAGError, GraphRAGValueError

T = TypeVar("T")

_TRANSIENT_STATUS = frozenset({408, 409, 423, 425, 429})
_BUGS = (TypeError, AttributeError, NotImplementedError, ImportError, LookupError, GraphRAGError)


class UnusableAnswerError(Exception):
    """An LLM answered, but nothing in the answer can be understood; asking again may help."""


class RejectedRequestError(Exception):
    """A request that was refused in one form and may be accepted in another."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is tried, and how long to wait in between.

    The wait doubles from `initial_wait` with up to 25% of jitter. Where the server answered with
    Retry-After, as seconds or as a date, that is waited instead. Neither is ever over `max_wait`.

    Parameters
    ----------
    attempts
        Calls at most, the first included.
    initial_wait, max_wait
        Seconds.
    sleep, async_sleep
        What waits; tests put in something that does not.

    Examples
    --------
    >>> waits = []
    >>> policy = RetryPolicy(attempts=3, sleep=waits.append)
    >>> def call(attempt):
    ...     if attempt < 3:
    ...         raise ConnectionError("gone")
    ...     return attempt
    >>> policy.call(call), len(waits)
    (3, 2)
    """

    attempts: int = 5
    initial_wait: float = 1.0
    max_wait: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    async_sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise GraphRAGValueError(f"attempts={self.attempts} must be at least 1")
        if self.initial_wait < 0 or self.max_wait < 0:
            raise GraphRAGValueError(
                f"initial_wait={self.initial_wait} and max_wait={self.max_wait} are seconds "
                "and cannot be negative"
            )

    def call(self, function: Callable[[int], T]) -> T:
        """Return ``function(attempt)``, attempts counted from 1; raise the last error."""
        retrying = tenacity.Retrying(
            sleep=self.sleep,
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception(is_transient),
            reraise=True,
        )
        for attempt in retrying:
            with attempt:
                result = function(attempt.retry_state.attempt_number)
        return result

    async def acall(self, function: Callable[[int], Awaitable[T]]) -> T:
        """Async twin of `call`."""
        retrying = tenacity.AsyncRetrying(
            sleep=self.async_sleep,
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception(is_transient),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                result = await function(attempt.retry_state.attempt_number)
        return result

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, RejectedRequestError):
            return 0.0
        asked = retry_after(error)
        if asked is not None:
            return min(asked, self.max_wait)
        backoff = tenacity.wait_exponential(multiplier=self.initial_wait, max=self.max_wait)
        jitter = tenacity.wait_random(0, 0.25 * self.initial_wait)
        return min(backoff(state) + jitter(state), self.max_wait)


class Breaker:
    """Stops asking an LLM that refused, or could not be reached, several times in a row.

    Safe to use from several threads.

    Parameters
    ----------
    limit
        Passages in a row; None never stops.

    Examples
    --------
    >>> breaker = Breaker(2)
    >>> breaker.failed(ConnectionError("gone")), breaker.reason is None
    (None, True)
    >>> breaker.failed(ConnectionError("gone"))
    >>> breaker.reason
    'not asked, since the LLM failed on 2 passages in a row: ConnectionError: gone'
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.reason: str | None = None
        self._row = 0
        self._lock = threading.Lock()

    def answered(self) -> None:
        """Count an answer, be it unusable."""
        with self._lock:
            self._row = 0

    def failed(self, error: BaseException) -> None:
        """Count a passage that failed with `error`, all attempts included."""
        if isinstance(error, UnusableAnswerError):
            self.answered()
            return
        with self._lock:
            self._row += 1
            if self._row == self.limit:
                self.reason = (
                    f"not asked, since the LLM failed on {self._row} passages in a row: "
                    f"{describe(error)}"
                )


def status_code(error: BaseException | None) -> int | None:
    """Return the HTTP status that `error` carries, or None.

    Examples
    --------
    >>> status_code(ValueError("no status")) is None
    True
    """
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return value
    return None


def is_transient(error: BaseException) -> bool:
    """Tell whether calling again may help: not for a bug, a wrong key or a bad request.

    Examples
    --------
    >>> is_transient(TimeoutError()), is_transient(TypeError())
    (True, False)
    """
    if not isinstance(error, Exception) or isinstance(error, _BUGS):
        return False
    status = status_code(error)
    return status is None or status in _TRANSIENT_STATUS or status >= 500


def retry_after(error: BaseException | None) -> float | None:
    """Return the seconds that the server behind `error` asked to wait, or None."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        headers = getattr(error, "headers", None)
    get = getattr(headers, "get", None)
    if get is None:
        return None
    value = get("retry-after") or get("Retry-After")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(str(value))
        except (TypeError, ValueError):
            return None
        if date.tzinfo is None:
            date = date.replace(tzinfo=timezone.utc)
        seconds = (date - datetime.now(timezone.utc)).total_seconds()
    return max(seconds, 0.0) if seconds == seconds else None


def describe(error: BaseException) -> str:
    """Return one line about `error`: its type, status and message, cut to 300 characters."""
    message = " ".join(str(error).split())
    status = status_code(error)
    head = type(error).__name__ + (f" (HTTP {status})" if status is not None else "")
    return f"{head}: {message[:300]}" if message else head
