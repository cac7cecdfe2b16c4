from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import httpx
import openai
import pytest

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.extractors.retry import (
    RetryPolicy,
    describe,
    is_transient,
    retry_after,
)


def http_error(status, **headers):
    request = httpx.Request("POST", "http://llm.test")
    response = httpx.Response(status, headers=headers, request=request)
    return openai.APIStatusError("no", response=response, body=None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (http_error(429), True),
        (http_error(500), True),
        (http_error(503), True),
        (http_error(400), False),
        (http_error(401), False),
        (TimeoutError(), True),
        (httpx.ConnectError("gone"), True),
        (TypeError(), False),
        (KeyError(), False),
        (GraphRAGValueError("x"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_is_worth_another_try(error, expected):
    assert is_transient(error) is expected


def test_retry_after_in_seconds_and_as_a_date():
    assert retry_after(http_error(429, **{"Retry-After": "7"})) == 7
    assert retry_after(http_error(429, **{"retry-after": "-3"})) == 0
    date = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=30), usegmt=True)
    assert 25 < retry_after(http_error(429, **{"Retry-After": date})) <= 30
    for nonsense in ("soon", "nan"):
        assert retry_after(http_error(429, **{"Retry-After": nonsense})) is None
    assert retry_after(ValueError()) is None


def failing(errors):
    left = list(errors)

    def call(attempt):
        if left:
            raise left.pop(0)
        return attempt

    return call


async def test_waits_double_are_capped_and_honour_retry_after():
    errors = [
        TimeoutError(),
        TimeoutError(),
        http_error(429, **{"Retry-After": "9"}),
        http_error(503, **{"Retry-After": "3600"}),
        *[TimeoutError()] * 3,
    ]
    waits, async_waits = [], []

    async def wait(seconds):
        async_waits.append(seconds)

    policy = RetryPolicy(attempts=8, max_wait=20, sleep=waits.append, async_sleep=wait)
    assert policy.call(failing(errors)) == 8
    call = failing(errors)

    async def acall(attempt):
        return call(attempt)

    assert await policy.acall(acall) == 8
    for made in (waits, async_waits):
        assert 1 <= made[0] <= 1.25
        assert 2 <= made[1] <= 2.25
        assert made[2:4] == [9, 20]
        assert 16 <= made[4] <= 20
        assert made[5:] == [20, 20]


def test_the_last_error_is_raised_and_a_permanent_one_at_once():
    waits = []
    policy = RetryPolicy(attempts=3, sleep=waits.append)
    with pytest.raises(TimeoutError):
        policy.call(failing([TimeoutError()] * 9))
    assert len(waits) == 2
    with pytest.raises(openai.APIStatusError):
        policy.call(failing([http_error(401)]))
    assert len(waits) == 2


def test_bad_settings_and_descriptions():
    with pytest.raises(GraphRAGValueError, match="attempts=0"):
        RetryPolicy(attempts=0)
    with pytest.raises(GraphRAGValueError, match="max_wait=-1"):
        RetryPolicy(max_wait=-1)
    assert describe(http_error(429)) == "APIStatusError (HTTP 429): no"
    assert describe(TimeoutError()) == "TimeoutError"
