"""One description of a process with I/O, run by a sync or by an async caller.

A process is a generator that yields steps and is sent their results. `drive` calls each step's
sync function, `adrive` awaits its async one; an exception is thrown into the process at the yield,
where it may be handled. So sync code never touches an event loop, and async code never blocks one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """Something to wait for, in both forms."""

    run: Callable[[], T]
    arun: Callable[[], Awaitable[T]]


# What a step brings is known where it is yielded (see `perform`), not in the generator's type.
Process = Generator[Step[Any], Any, T]


def perform(step: Step[T]) -> Process[T]:
    """Yield `step` and return its result, with its type."""
    result: T = yield step
    return result


def call(
    run: Callable[P, T], arun: Callable[..., Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
) -> Process[T]:
    """Call a function or its async twin: ``x = yield from call(store.search, store.asearch)``."""
    step = Step(lambda: run(*args, **kwargs), lambda: arun(*args, **kwargs))
    return (yield from perform(step))


def together(first: Step[T], second: Step[U]) -> Step[tuple[T, U]]:
    """Return a step that does both: one after the other when sync, at once when async."""

    async def arun() -> tuple[T, U]:
        # A task group would be tidier, but Python 3.10 has none.
        tasks = asyncio.ensure_future(first.arun()), asyncio.ensure_future(second.arun())
        try:
            results = await asyncio.gather(*tasks)
            return results[0], results[1]
        finally:
            for task in tasks:
                task.cancel()  # where one fails, the other must not go on and cost

    return Step(run=lambda: (first.run(), second.run()), arun=arun)


def gather(steps: Sequence[Step[T]], *, workers: int) -> Step[list[T]]:
    """Return a step that does all of `steps`, at most `workers` at once: in threads, or as tasks.

    Examples
    --------
    >>> async def aupper(text): return text.upper()
    >>> step = gather(
    ...     [Step(t.upper, lambda t=t: aupper(t)) for t in ("a", "b")], workers=2
    ... )
    >>> drive(perform(step))
    ['A', 'B']
    """

    def run() -> list[T]:
        if workers < 2 or len(steps) < 2:
            return [step.run() for step in steps]
        with ThreadPoolExecutor(min(workers, len(steps))) as pool:
            # The context keeps traces under the caller's span.
            futures = [pool.submit(copy_context().run, step.run) for step in steps]
            return [future.result() for future in futures]

    async def arun() -> list[T]:
        semaphore = asyncio.Semaphore(max(workers, 1))

        async def one(step: Step[T]) -> T:
            async with semaphore:
                return await step.arun()

        tasks = [asyncio.ensure_future(one(step)) for step in steps]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    return Step(run, arun)


def drive(process: Process[T]) -> T:
    """Run a process to its end with sync calls.

    Examples
    --------
    >>> async def alength(text): return len(text)
    >>> def double(text):
    ...     return 2 * (yield from call(len, alength, text))
    >>> drive(double("Euler"))
    10
    """
    try:
        step = next(process)
        while True:
            try:
                result = step.run()
            except Exception as error:
                step = process.throw(error)
            else:
                step = process.send(result)
    except StopIteration as stop:
        finished: T = stop.value
        return finished
    finally:
        process.close()  # what interrupts or cancels a step is not thrown into the process


async def adrive(process: Process[T]) -> T:
    """Run a process to its end with async calls."""
    try:
        step = next(process)
        while True:
            try:
                result = await step.arun()
            except Exception as error:
                step = process.throw(error)
            else:
                step = process.send(result)
    except StopIteration as stop:
        finished: T = stop.value
        return finished
    finally:
        process.close()  # what interrupts or cancels a step is not thrown into the process
