"""A connection to Elasticsearch: retries with back-off, counted calls and helpful errors."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from llama_index_graph_rag.errors import GraphRAGTypeError, MissingExtraError, StoreError
from llama_index_graph_rag.identity import clean_text
from llama_index_graph_rag.steps import Process, Step, perform

if TYPE_CHECKING:
    from elasticsearch import AsyncElasticsearch, Elasticsearch

Json = dict[str, Any]
"""A JSON object as the engine sends it."""

RETRIED = (429, 502, 503, 504)
"""HTTP statuses after which the same request may succeed."""
MAX_BACKOFF = 10.0
"""Longest wait between two tries, in seconds."""
BULK_ROWS, BULK_CHARACTERS = 500, 8_000_000
"""Most rows and text of one bulk request; the engine refuses requests over 100 MB."""

_counters: ContextVar[tuple[Counter[str], ...]] = ContextVar("elasticsearch_calls", default=())


class ElasticsearchConnection:
    """Clients of one Elasticsearch; holds the secrets, never shows them.

    The sync client is made once (it may be shared by threads); an async one is made for each use
    and closed after it, so that none outlives its event loop.

    Parameters
    ----------
    url
        One URL, or several of one cluster.
    api_key, basic_auth, ca_certs, request_timeout, max_retries, retry_backoff, client_options
        As for `ElasticsearchStore`.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        api_key: str | None,
        basic_auth: tuple[str, str] | None,
        ca_certs: str | None,
        request_timeout: float,
        max_retries: int,
        retry_backoff: float,
        client_options: Mapping[str, Any] | None,
    ) -> None:
        try:
            import elasticsearch
        except ImportError as error:
            raise MissingExtraError("elasticsearch", "elasticsearch") from error
        urls = [url] if isinstance(url, str) else list(url)
        if not urls or not all(isinstance(one, str) for one in urls):
            raise GraphRAGTypeError(f"url is {type(url).__name__}; give a URL or a list of URLs")
        self.shown = ", ".join(_without_secrets(one) for one in urls)
        self.max_retries, self.retry_backoff = max_retries, retry_backoff
        self.request_timeout = request_timeout
        self._options: dict[str, Any] = {
            "hosts": urls,
            "api_key": api_key,
            "basic_auth": basic_auth,
            "request_timeout": request_timeout,
            # Retries are made here, with a wait between them: the client would make them at once.
            "max_retries": 0,
            **({"ca_certs": ca_certs} if ca_certs else {}),
            **(client_options or {}),
        }
        self._elasticsearch = elasticsearch
        self._client: Elasticsearch = elasticsearch.Elasticsearch(**self._options)

    def __repr__(self) -> str:
        return f"ElasticsearchConnection({self.shown!r})"

    def close(self) -> None:
        """Close the sync client."""
        self._client.close()

    @property
    def session(self) -> Session:
        """Make calls through the sync client."""
        return Session(self, None)

    @asynccontextmanager
    async def async_session(self) -> AsyncIterator[Session]:
        """Make calls through an async client that lives as long as the block."""
        client = self._elasticsearch.AsyncElasticsearch(**self._options)
        try:
            yield Session(self, client)
        finally:
            await client.close()

    def perform_sync(self, method: str, arguments: Mapping[str, Any]) -> Json:
        """Call the sync client, again where that may help."""
        for attempt in range(self.max_retries + 1):
            count(method, arguments)
            try:
                return _body(_method(self._client, method)(**arguments))
            except (self._elasticsearch.ApiError, self._elasticsearch.TransportError) as error:
                time.sleep(self._wait(error, attempt))
        raise AssertionError("unreachable")

    async def perform_async(
        self, client: AsyncElasticsearch, method: str, arguments: Mapping[str, Any]
    ) -> Json:
        """Call an async client, again where that may help."""
        for attempt in range(self.max_retries + 1):
            count(method, arguments)
            try:
                return _body(await _method(client, method)(**arguments))
            except (self._elasticsearch.ApiError, self._elasticsearch.TransportError) as error:
                await asyncio.sleep(self._wait(error, attempt))
        raise AssertionError("unreachable")

    def backoff(self, attempt: int) -> float:
        """Return how long to wait after the failed try number `attempt`, in seconds."""
        return min(MAX_BACKOFF, self.retry_backoff * 2.0**attempt)

    def _wait(self, error: Exception, attempt: int) -> float:
        """Return how long to wait before the next try, or raise a StoreError."""
        status = getattr(error, "status_code", None)
        again = status in RETRIED or isinstance(error, self._elasticsearch.ConnectionError)
        again = again or isinstance(error, self._elasticsearch.ConnectionTimeout)
        if not again or attempt == self.max_retries:
            raise StoreError(self._explain(error, status, attempt + 1)) from error
        asked = _retry_after(error)
        return min(MAX_BACKOFF, asked) if asked is not None else self.backoff(attempt)

    def _explain(self, error: Exception, status: int | None, tries: int) -> str:
        name, tried = f"Elasticsearch at {self.shown}", f"{tries} tr{'y' if tries == 1 else 'ies'}"
        if isinstance(error, self._elasticsearch.ConnectionTimeout):
            return (
                f"{name} did not answer within {self.request_timeout} s in {tried}; raise "
                "request_timeout, or look at the load of the cluster"
            )
        if status is None:
            return (
                f"{name} cannot be reached ({type(error).__name__}, {tried}); start it, or check "
                "url, ca_certs and the network"
            )
        if status in (401, 403):
            return (
                f"{name} refuses these credentials ({status}); pass api_key or basic_auth with "
                "the right to read and write the indices of this index_prefix"
            )
        if status in RETRIED:
            return (
                f"{name} is overloaded or not ready ({status}, {tried}); lower the load, wait, or "
                "raise max_retries and retry_backoff"
            )
        reason = str(error)
        if "index_not_found" in reason:
            return (
                f"{name} does not hold this graph yet ({reason}); load it with add() or "
                "from_index(), or check index_prefix"
            )
        return f"{name} rejects a request: {reason}"


class Session:
    """Steps that call one client: the sync one, or the async one of a block."""

    def __init__(
        self, connection: ElasticsearchConnection, client: AsyncElasticsearch | None
    ) -> None:
        self._connection, self._client = connection, client

    def call(self, method: str, **arguments: Any) -> Process[Json]:
        """Call a method of the client, such as ``search`` or ``indices.refresh``."""
        if method != "bulk":  # rows are clean already
            arguments = _clean(arguments)
        return perform(
            Step(
                run=lambda: self._connection.perform_sync(method, arguments),
                arun=lambda: self._connection.perform_async(self._async, method, arguments),
            )
        )

    def search(self, **arguments: Any) -> Process[Json]:
        """Search; a part of the shards is no answer."""
        return self.call("search", allow_partial_search_results=False, **arguments)

    def scan(
        self, *, index: str, query: Json, sort: Sequence[str], source: Any
    ) -> Process[list[Json]]:
        """Return all hits of a query, in pages behind the scenes; `sort` tells rows apart."""
        found: list[Json] = []
        after: list[Any] | None = None
        while True:
            page = yield from self.search(
                index=index,
                query=query,
                size=10_000,
                sort=[{key: "asc"} for key in sort],
                source=source,
                track_total_hits=False,
                **({"search_after": after} if after else {}),
            )
            hits = page["hits"]["hits"]
            found += hits
            if len(hits) < 10_000:
                return found
            after = hits[-1]["sort"]

    def bulk(self, actions: Sequence[tuple[Json, Json | None]]) -> Process[list[str]]:
        """Write rows in bulk; return the ids of those that another writer had changed.

        Each action is its line of the bulk API and the row it writes, if any. What the engine
        refuses for its load is written again after a wait.
        """
        conflicts: list[str] = []
        for part in _parts(actions):
            pending = part
            for attempt in range(self._connection.max_retries + 1):
                lines = [line for action in pending for line in action if line is not None]
                answer = yield from self.call("bulk", operations=lines)
                refused, first = [], ""
                for action, item in zip(pending, answer["items"]):
                    ((kind, result),) = item.items()
                    status = result["status"]
                    if status < 300 or (kind == "delete" and status == 404):
                        continue
                    if status == 409:
                        conflicts.append(result["_id"])
                    elif status in RETRIED:
                        refused.append(action)
                        first = first or str(result.get("error"))
                    else:
                        raise StoreError(
                            f"Elasticsearch at {self._connection.shown} rejects row "
                            f"{result['_id']} of {result['_index']}: {result.get('error')}; what "
                            "was written before stays and may be written again"
                        )
                if not refused:
                    break
                if attempt == self._connection.max_retries:
                    raise StoreError(
                        f"Elasticsearch at {self._connection.shown} refused {len(refused)} rows "
                        f"{attempt + 1} times ({first}); lower the load or raise max_retries, "
                        "then repeat this call: rows are never counted twice"
                    )
                pending = refused
                yield from self._pause(attempt)
        return conflicts

    @property
    def _async(self) -> AsyncElasticsearch:
        if self._client is None:
            raise StoreError("a sync session was awaited; use the async methods of the store")
        return self._client

    def _pause(self, attempt: int) -> Process[None]:
        seconds = self._connection.backoff(attempt)
        return perform(Step(run=lambda: time.sleep(seconds), arun=lambda: asyncio.sleep(seconds)))


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the calls that are made within the block, in its tasks and ``to_thread`` too.

    Keys are ``elasticsearch.search``, where each search of a multi-search counts,
    ``elasticsearch.bulk`` and so on. A call that is tried again counts again.

    Examples
    --------
    >>> with counting() as calls:
    ...     count("msearch", {"searches": [{}, {"size": 1}, {}, {"size": 1}]})
    >>> calls["elasticsearch.search"]
    2
    """
    calls: Counter[str] = Counter()
    token = _counters.set((*_counters.get(), calls))
    try:
        yield calls
    finally:
        _counters.reset(token)


def count(method: str, arguments: Mapping[str, Any]) -> None:
    """Count one call in every counter that is open around it."""
    key, number = f"elasticsearch.{method}", 1
    if method == "msearch":
        key, number = "elasticsearch.search", len(arguments["searches"]) // 2
    for calls in _counters.get():
        calls[key] += number


def _clean(value: Any) -> Any:
    """Return `value` without lone surrogates, which no request can carry."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], float):
        return [_clean(item) for item in value]
    return value


def _method(client: Any, name: str) -> Any:
    for part in name.split("."):
        client = getattr(client, part)
    return client


def _body(response: Any) -> Json:
    body = getattr(response, "body", response)
    return body if isinstance(body, dict) else {"value": body}


def _retry_after(error: Exception) -> float | None:
    meta = getattr(error, "meta", None)
    value = meta.headers.get("retry-after") if meta is not None else None
    return float(value) if value is not None and value.isdecimal() else None


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _parts(
    actions: Sequence[tuple[Json, Json | None]],
) -> Iterator[list[tuple[Json, Json | None]]]:
    part: list[tuple[Json, Json | None]] = []
    characters = 0
    for action in actions:
        size = sum(
            len(value) * (1 if isinstance(value, str) else 20)
            for value in (action[1] or {}).values()
            if isinstance(value, (str, list))
        )
        if part and (len(part) == BULK_ROWS or characters + size > BULK_CHARACTERS):
            yield part
            part, characters = [], 0
        part.append(action)
        characters += size
    if part:
        yield part
