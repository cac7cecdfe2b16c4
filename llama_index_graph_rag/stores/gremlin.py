"""A small client of HugeGraph's REST server: requests in, decoded JSON out, sync or async.

What an operation asks is written once, as a generator that yields requests and is sent their
answers; `GremlinClient.run` drives it with a sync client and `GremlinClient.arun` with an async
one. Every value travels as a binding, never inside the script.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from llama_index_graph_rag.errors import (
    GraphRAGError,
    GraphRAGValueError,
    MissingExtraError,
    StoreError,
)
from llama_index_graph_rag.identity import clean_text

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("llama_index_graph_rag")

MAX_BODY_BYTES = 65_536
"""HugeGraph refuses a longer request."""

MAX_WAIT = 10.0
"""Most seconds that are waited because the server asked for it."""

BATCH_BYTES = 48_000
"""How many bytes of values one request may carry; the rest is for script and escapes."""

T = TypeVar("T")


class Request(NamedTuple):
    """One HTTP request; `path` may hold ``{graph}``, which becomes the graph's own path."""

    method: str
    path: str
    body: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None


class Gremlin(NamedTuple):
    """One Gremlin script with the values of its variables; answered by the list of its results.

    No variable may be called like something that HugeGraph imports (``key``, ``values``, ``id``,
    ``label``, ...): the import would win over the binding, without an error.
    """

    script: str
    bindings: Mapping[str, object]


# JSON from outside: its shape is checked where it is read.
Ask = Generator["Request | Gremlin | float", Any, T]
"""What an operation wants, one after another: a request, a query, or to wait some seconds."""


@dataclass(frozen=True, slots=True)
class _Dialect:
    aliases: Mapping[str, str]
    graph_path: str


def dialect(core: str, graph: str, graphspace: str) -> _Dialect:
    """Return the names that HugeGraph of version `core` gives to one graph.

    From 1.7 on a graph lies in a graphspace.

    Examples
    --------
    >>> dialect("1.5.0", "hugegraph", "DEFAULT").aliases["g"]
    '__g_hugegraph'
    >>> dialect("1.7.0", "hugegraph", "DEFAULT").graph_path
    '/graphspaces/DEFAULT/graphs/hugegraph'
    """
    numbers = [int(number) for number in re.findall(r"\d+", core)[:2]]
    if numbers >= [1, 7]:
        name = f"{graphspace}-{graph}"
        path = f"/graphspaces/{graphspace}/graphs/{graph}"
    else:
        name, path = graph, f"/graphs/{graph}"
    return _Dialect({"graph": name, "g": f"__g_{name}"}, path)


@dataclass(slots=True)
class GremlinClient:
    """Talks to one graph of one HugeGraph server.

    Parameters
    ----------
    url
        Address of the REST server, ``http://127.0.0.1:8080``.
    graph, graphspace
        Which graph; the graphspace matters from HugeGraph 1.7 on.
    username, password
        HTTP Basic authentication, if the server asks for it. Never shown.
    timeout
        Seconds to wait for the server, default 30.
    retries
        How often a request is repeated after a status of 429, of 500 or more, or a lost
        connection, default 2. All writes of this package can be repeated.
    backoff
        Seconds before the first repetition, doubled each time, default 0.2. After a 429 with
        ``Retry-After`` that time, at most 10 seconds.

    Raises
    ------
    GraphRAGValueError
        If the url, the graph's name or a number cannot be used.
    MissingExtraError
        If httpx is not installed.
    """

    url: str
    graph: str = "hugegraph"
    graphspace: str = "DEFAULT"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout: float = 30.0
    retries: int = 2
    backoff: float = 0.2
    _dialect: _Dialect | None = field(default=None, init=False, repr=False)
    _tls: ssl.SSLContext | bool = field(default=True, init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError("httpx", "hugegraph") from error
        if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", self.url):
            raise GraphRAGValueError(
                "url is the address of HugeGraph's REST server, like 'http://127.0.0.1:8080'; "
                "a user and password go into username= and password=, not into the url"
            )
        try:
            port = httpx.URL(self.url).port or 0
        except httpx.InvalidURL as error:
            raise GraphRAGValueError(f"url={self.url!r} is no address: {error}") from error
        if port > 65_535:
            raise GraphRAGValueError(f"url={self.url!r}: a port is at most 65,535")
        for name in ("graph", "graphspace"):
            if not re.fullmatch(r"[A-Za-z0-9_]+", getattr(self, name)):
                raise GraphRAGValueError(
                    f"{name} is letters, digits and underscores, got {getattr(self, name)!r}"
                )
        if self.timeout <= 0 or self.retries < 0 or self.backoff < 0:
            raise GraphRAGValueError(
                f"timeout is over 0 and retries and backoff are 0 or more, got "
                f"{self.timeout}, {self.retries} and {self.backoff}"
            )
        self.url = self.url.rstrip("/")
        # Loading certificates takes longer than a query: once, and only where they are used.
        self._tls = ssl.create_default_context() if self.url.startswith("https") else False

    def run(self, ask: Ask[T]) -> T:
        """Drive `ask` to its end with a client of its own and return its result.

        Raises
        ------
        StoreError
            If the server cannot be reached, is too slow, or refuses a request.
        """
        import httpx

        steps = self._steps(ask)
        outcome: httpx.Response | httpx.RequestError | None = None
        with httpx.Client(**self._options()) as client:
            while True:
                try:
                    step = steps.send(outcome)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                if isinstance(step, float):
                    time.sleep(step)
                    continue
                try:
                    outcome = client.request(**_arguments(step))
                except httpx.RequestError as error:
                    outcome = error

    async def arun(self, ask: Ask[T]) -> T:
        """Async twin of `run`; the client lives for this call, so no event loop is kept."""
        import httpx

        steps = self._steps(ask)
        outcome: httpx.Response | httpx.RequestError | None = None
        async with httpx.AsyncClient(**self._options()) as client:
            while True:
                try:
                    step = steps.send(outcome)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    continue
                try:
                    outcome = await client.request(**_arguments(step))
                except httpx.RequestError as error:
                    outcome = error

    def _options(self) -> dict[str, Any]:
        auth = None if self.username is None else (self.username, self.password or "")
        return {
            "base_url": self.url,
            "auth": auth,
            "timeout": self.timeout,
            "verify": self._tls,
            "trust_env": False,
        }

    def _steps(self, ask: Ask[T]) -> Generator[Request | float, Any, T]:
        """Turn what `ask` wants into requests and pauses, which the two drivers carry out."""
        answer: object = None
        wanted: Request | Gremlin | float | None = None
        while True:
            try:
                wanted = ask.send(answer)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                if not isinstance(wanted, Gremlin) or isinstance(error, GraphRAGError):
                    raise
                raise StoreError(
                    f"HugeGraph at {self.url} answered a query with rows of an unknown form "
                    f"({error!r}): {_short(str(answer))}"
                ) from error
            if isinstance(wanted, float):
                yield wanted
                answer = None
                continue
            if self._dialect is None:
                self._dialect = self._learned((yield from self._exchange(_VERSIONS)))
            body = yield from self._exchange(self._wire(wanted, self._dialect))
            answer = self._rows(body) if isinstance(wanted, Gremlin) else body

    def _exchange(self, request: Request) -> Generator[Request | float, Any, Any]:
        for attempt in range(self.retries + 1):
            outcome = yield request
            lost = not hasattr(outcome, "status_code")
            if not lost and outcome.status_code < 500 and outcome.status_code != 429:
                break
            if attempt < self.retries:
                reason = type(outcome).__name__ if lost else f"status {outcome.status_code}"
                logger.warning("%s %s: %s, trying again", request.method, request.path, reason)
                asked = None if lost else outcome.headers.get("retry-after")
                wait = min(MAX_WAIT, int(asked)) if asked and asked.isdecimal() else None
                yield float(self.backoff * 2**attempt if wait is None else wait)
        if lost:
            raise StoreError(
                f"HugeGraph at {self.url} did not answer {request.method} {request.path} "
                f"({type(outcome).__name__}, {attempt + 1} attempts, timeout {self.timeout} s); "
                f"check that it runs, or raise timeout="
            ) from outcome
        return self._decoded(request, outcome)

    def _decoded(self, request: Request, response: httpx.Response) -> Any:
        if response.status_code < 300:
            if not response.content:
                return None
            try:
                return response.json()
            except ValueError as error:
                raise StoreError(
                    f"HugeGraph at {self.url} answered {request.method} {request.path} with "
                    f"something that is not JSON: {_short(response.text)}"
                ) from error
        raise StoreError(
            f"HugeGraph at {self.url} refused {request.method} {request.path} with status "
            f"{response.status_code}: {_reason(response)}{_remedy(response.status_code)}"
        )

    def _learned(self, body: Any) -> _Dialect:
        try:
            core = str(body["versions"]["core"])
        except (TypeError, KeyError, IndexError) as error:
            raise StoreError(
                f"{self.url}/versions does not answer like HugeGraph: {_short(str(body))}"
            ) from error
        return dialect(core, self.graph, self.graphspace)

    def _wire(self, wanted: Request | Gremlin, names: _Dialect) -> Request:
        if isinstance(wanted, Request):
            return wanted._replace(path=wanted.path.replace("{graph}", names.graph_path))
        body = {
            "gremlin": wanted.script,
            "bindings": {name: _clean(value) for name, value in wanted.bindings.items()},
            "language": "gremlin-groovy",
            "aliases": names.aliases,
        }
        size = len(json.dumps(body).encode())
        if size > MAX_BODY_BYTES:
            raise GraphRAGValueError(
                f"a query of {size:,} bytes is over HugeGraph's limit of {MAX_BODY_BYTES:,}; "
                f"ask with fewer or shorter values"
            )
        return Request("POST", "/gremlin", body)

    def _rows(self, body: Any) -> list[Any]:
        result = body.get("result") if isinstance(body, dict) else None
        rows: object = result.get("data", ()) if isinstance(result, dict) else ""
        rows = [] if rows is None else rows
        if not isinstance(rows, list):
            raise StoreError(
                f"HugeGraph at {self.url} answered a query without a result: {_short(str(body))}"
            )
        return rows


_VERSIONS = Request("GET", "/versions")


def batches(values: Iterable[T], limit: int = BATCH_BYTES) -> Iterator[list[T]]:
    """Split `values` so that each list is at most `limit` bytes of JSON.

    A single value over the limit is left out, with a warning: no request could carry it.

    Examples
    --------
    >>> list(batches(["aa", "bb", "cc"], limit=12))
    [['aa', 'bb'], ['cc']]
    """
    batch: list[T] = []
    size = 0
    for value in values:
        length = len(json.dumps(value).encode()) + 2
        if length > limit:
            logger.warning(
                "a value of %d bytes is over the %d of a request: left out", length, limit
            )
            continue
        if size + length > limit:
            yield batch
            batch, size = [], 0
        batch.append(value)
        size += length
    if batch:
        yield batch


def _arguments(request: Request) -> dict[str, Any]:
    arguments: dict[str, Any] = {"method": request.method, "url": request.path}
    if request.body is not None:
        # ASCII only, as it was measured.
        arguments["content"] = json.dumps(request.body).encode()
        arguments["headers"] = {"Content-Type": "application/json"}
    return arguments


def _reason(response: httpx.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        return _short(response.text)
    message = body.get("message") if isinstance(body, dict) else None
    return _short(str(message or body))


def _remedy(status: int) -> str:
    if status == 429:
        return "; lower the load, wait, or raise retries= and backoff="
    if status == 401:
        return "; set username= and password="
    if status == 403:
        return "; this user may not do this: use another username="
    if status == 413:
        return "; ask with fewer or shorter values"
    return ""


def _clean(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _short(text: str, limit: int = 500) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
