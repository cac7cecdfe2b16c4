"""One description of a process, driven sync and async."""

from __future__ import annotations

import asyncio

import pytest

from llama_index_graph_rag.steps import Process, Step, adrive, call, drive, perform, together


class Service:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def double(self, number: int, *, plus: int = 0) -> int:
        self.calls.append("sync")
        if number < 0:
            raise ValueError(number)
        return 2 * number + plus

    async def adouble(self, number: int, *, plus: int = 0) -> int:
        await asyncio.sleep(0)
        result = self.double(number, plus=plus)
        self.calls[-1] = "async"
        return result

    def process(self, *numbers: int) -> Process[list[int]]:
        found = []
        for number in numbers:
            try:
                found.append((yield from call(self.double, self.adouble, number, plus=1)))
            except ValueError:
                found.append(-1)
        return found


def test_sync_never_touches_the_async_twins():
    service = Service()
    assert drive(service.process(1, -2, 3)) == [3, -1, 7]
    assert service.calls == ["sync"] * 3


async def test_async_never_touches_the_sync_ones():
    service = Service()
    assert await adrive(service.process(1, 3)) == [3, 7]
    assert service.calls == ["async"] * 2


async def test_an_error_arises_where_it_is_waited_for():
    service = Service()
    assert await adrive(service.process(-1, 1)) == [-1, 3]

    def careless() -> Process[int]:
        return (yield from call(service.double, service.adouble, -5))

    with pytest.raises(ValueError, match="-5"):
        drive(careless())
    with pytest.raises(ValueError, match="-5"):
        await adrive(careless())


async def test_a_process_of_no_steps_ends_at_once():
    def nothing() -> Process[str]:
        return "done"
        yield

    assert drive(nothing()) == "done"
    assert await adrive(nothing()) == "done"


async def test_together_is_one_after_the_other_or_at_once():
    order: list[str] = []
    first_may_end = asyncio.Event()

    async def first() -> str:
        order.append("first begins")
        await first_may_end.wait()  # only the second lets it end
        return "a"

    async def second() -> str:
        order.append("second begins")
        first_may_end.set()
        return "b"

    def both(step: Step) -> Process[tuple[str, str]]:
        return (yield from perform(step))

    step = together(
        Step(lambda: order.append("1") or "A", first),
        Step(lambda: order.append("2") or "B", second),
    )
    assert await asyncio.wait_for(adrive(both(step)), 5) == ("a", "b")
    assert order == ["first begins", "second begins"]
    order.clear()
    assert drive(both(step)) == ("A", "B")
    assert order == ["1", "2"]


async def test_where_one_of_two_fails_the_other_does_not_go_on():
    ended = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def failing() -> None:
        raise ValueError("no")

    def both() -> Process[tuple[None, None]]:
        steps = Step(lambda: None, endless), Step(lambda: None, failing)
        return (yield from perform(together(*steps)))

    with pytest.raises(ValueError, match="no"):
        await asyncio.wait_for(adrive(both()), 5)
    await asyncio.sleep(0)
    assert ended == [True]


async def test_a_cancelled_process_is_cleaned_up():
    cleaned = []

    async def forever() -> None:
        await asyncio.Event().wait()

    def process() -> Process[None]:
        try:
            yield from call(lambda: None, forever)
        finally:
            cleaned.append(True)

    task = asyncio.create_task(adrive(process()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
