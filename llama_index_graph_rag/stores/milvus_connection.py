"""A connection to Milvus: Lite, server or cluster; pages, batches and errors in one place."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from llama_index_graph_rag.errors import GraphRAGValueError, StoreError
from llama_index_graph_rag.stores import milvus_layout as layout
from llama_index_graph_rag.stores.base import Hits, Vectors
from llama_index_graph_rag.stores.milvus_columns import Columns, Row, upsert
from llama_index_graph_rag.stores.milvus_filters import ids_expression, quote

T = TypeVar("T")

MAX_WINDOW = 16_384
"""Most rows that a Milvus server gives in one search or query."""
SCAN_PAGE = 4_096
"""Rows a page of a scan on a server; a page comes in the order of the key's bytes."""
MAX_IDS = 1_000
"""Most ids in one filter; more are asked for in several calls."""
_NO_LIMIT = 2**31 - 1

# In one process there is nobody to keep a connection alive for, and Lite's server objects to it.
_LITE_GRPC = {"grpc.keepalive_time_ms": _NO_LIMIT}

# Milvus Lite runs one server a file in this process, which all connections to the file share.
_lite_guard = threading.Lock()
_lite_users: Counter[str] = Counter()
_lite_locks: dict[str, threading.RLock] = {}
_lite_shared: dict[str, dict[str, object]] = {}


class MilvusConnection:
    """A pymilvus client whose every call asks for Session consistency and fails as StoreError.

    Parameters
    ----------
    uri
        A Milvus Lite path that ends in ``.db`` (its folder is created) or a server's URI.
    token, db_name, timeout
        As for `MilvusGraphStore`.

    Attributes
    ----------
    uri, place
        The URI with which to connect, and the same for messages: without a password.
    write_lock
        Held while writing; connections to one Milvus Lite file share it.
    shared
        What connections to one Milvus Lite file tell each other, by collection.
    """

    def __init__(
        self, uri: str | Path, *, token: str = "", db_name: str = "", timeout: float | None = None
    ) -> None:
        self.uri, self.is_lite = _resolve_uri(uri)
        self.place = re.sub(r"://[^/@]*@", "://***@", self.uri)
        self.token, self.db_name = token, db_name
        self.closed = False
        self.shared: dict[str, object] = {}
        if self.is_lite:
            _check_place(Path(self.uri))
        options = {"grpc_options": _LITE_GRPC} if self.is_lite else {}
        with _lite_guard if self.is_lite else nullcontext():
            try:
                with _said_once() if self.is_lite else nullcontext():
                    self.client = MilvusClient(
                        self.uri, token=token, db_name=db_name, timeout=timeout, **options
                    )
            except Exception as error:
                remedy = (
                    "one process at a time can open a Milvus Lite file: close the other one, or "
                    "share the data through `milvus-lite server` or a Milvus server and pass its "
                    "http:// URI"
                    if self.is_lite
                    else "check that the server runs and that uri, token and db_name are right"
                )
                # pymilvus may quote the connection's arguments: the cause's text is not repeated.
                raise StoreError(
                    f"cannot open {self.place!r} ({type(error).__name__}); {remedy}"
                ) from None
            if self.is_lite:
                _lite_users[self.uri] += 1
                self.write_lock = _lite_locks.setdefault(self.uri, threading.RLock())
                self.shared = _lite_shared.setdefault(self.uri, {})
            else:
                self.write_lock = threading.RLock()

    def __repr__(self) -> str:
        return f"MilvusConnection({self.place!r})"

    def call(self, action: str, function: Callable[[], T]) -> T:
        """Return what `function` returns; a Milvus error becomes a StoreError that says so."""
        if self.closed:
            raise StoreError(
                f"cannot {action}: the connection to {self.place!r} was closed; open the index anew"
            )
        try:
            return function()
        except MilvusException as error:
            raise StoreError(
                f"Milvus at {self.place!r} could not {action}: {error.message}; if the server is "
                "busy or was restarted, try again: every write can be repeated safely"
            ) from error

    def has(self, collection: str) -> bool:
        """Return whether the collection exists."""
        return bool(self.call("look", lambda: self.client.has_collection(collection)))

    def load(self, collection: str) -> None:
        """Make a collection searchable: one reopened by a new process is not."""
        self.call("load", lambda: self.client.load_collection(collection))

    def create(
        self,
        collection: str,
        fields: Sequence[str],
        *,
        dimension: int,
        metric: str,
        index: Mapping[str, object],
        dynamic: bool,
    ) -> None:
        """Create, index and load a collection; an empty one that is there and fits will do.

        Raises
        ------
        StoreError
            If it is there with rows, or with other fields or vectors of another dimension.
        """
        if not self.has(collection):
            self.call(
                "create",
                lambda: layout.create_collection(
                    self.client, collection, fields, dimension=dimension, dynamic=dynamic
                ),
            )
        else:
            # Left by a creation that was broken off, or somebody else's.
            about = self.call("look", lambda: self.client.describe_collection(collection))
            found = {field["name"]: field["params"].get("dim") for field in about["fields"]}
            expected = {**dict.fromkeys(fields), "embedding": dimension}
            stats = self.call("look", lambda: self.client.get_collection_stats(collection))
            if found != expected or int(stats["row_count"]):
                raise StoreError(
                    f"collection {collection!r} exists with the fields {sorted(found)}, vectors of "
                    f"{found.get('embedding')} dimensions and {stats['row_count']} rows, and is "
                    f"not part of an index of ours with {dimension} dimensions; choose another "
                    "collection_prefix, or drop it"
                )
        if not self.call("look", lambda: self.client.list_indexes(collection)):
            self.call(
                "index",
                lambda: layout.create_index(self.client, collection, metric=metric, index=index),
            )
        self.load(collection)

    def index_type(self, collection: str) -> str:
        """Return how the vectors of a collection are indexed."""
        about = self.call("look", lambda: self.client.describe_index(collection, "embedding"))
        return str(about["index_type"])

    def write(self, collection: str, columns: Columns) -> None:
        """Upsert rows, in requests that a server accepts."""
        for request in columns.requests():
            self.call("write", lambda rows=request: upsert(self.client, collection, rows))  # type: ignore[misc]

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete rows by id."""
        for part in parts(ids, MAX_IDS):
            where = ids_expression(part)
            self.call("delete", lambda where=where: self.client.delete(collection, filter=where))  # type: ignore[misc]
        if ids and not self.is_lite:
            # Session consistency shows what was written, not what was deleted; this waits for it.
            self.query(collection, 'id >= ""', ["id"], 1, consistency="Strong")

    def flush(self, collection: str) -> None:
        """Seal what was written."""
        self.call("flush", lambda: self.client.flush(collection))

    def search(
        self,
        collection: str,
        vectors: Vectors,
        *,
        limit: int,
        metric: str,
        text: bool,
        where: str = "",
    ) -> tuple[Hits, ...]:
        """Return what is nearest to each vector: one call for all of them."""
        found = self.call(
            "search",
            lambda: self.client.search(
                collection,
                data=[vector.tolist() for vector in vectors],
                filter=where,
                limit=limit,
                output_fields=["text"] if text else ["id"],
                anns_field="embedding",
                search_params={"metric_type": metric},
                consistency_level="Session",
            ),
        )
        return tuple(_hits(hits) for hits in found)

    def query(
        self,
        collection: str,
        where: str,
        fields: Sequence[str],
        limit: int = MAX_WINDOW,
        *,
        consistency: str = "Session",
    ) -> list[Row]:
        """Return at most `limit` rows that pass an expression."""
        rows = self.call(
            "query",
            lambda: self.client.query(
                collection,
                filter=where,
                output_fields=list(fields),
                limit=limit,
                consistency_level=consistency,
            ),
        )
        return [dict(row) for row in rows]

    def get(self, collection: str, ids: Sequence[str], fields: Sequence[str]) -> Iterator[Row]:
        """Yield the rows with these ids, in any order."""
        # Every query on Lite goes through all rows.
        at_once = SCAN_PAGE if self.is_lite else MAX_IDS
        for part in parts(list(dict.fromkeys(ids)), at_once):
            yield from self.query(collection, ids_expression(part), fields)

    def scan(self, collection: str, fields: Sequence[str], where: str = "") -> Iterator[list[Row]]:
        """Yield all rows that pass an expression, in pages."""
        if self.is_lite:
            # Lite has no window, and its iterator reads the collection anew for every page.
            if page := self.query(collection, where, fields, _NO_LIMIT):
                yield page
            return
        # Not query_iterator: it fails on keys with quotes or newlines and sleeps at its start.
        # Session consistency shows what this client wrote, Strong what any did: after passages,
        # the relations that they state. What one page has waited for, the next ones show.
        first = where or 'id >= ""'
        page = self.query(collection, first, fields, SCAN_PAGE, consistency="Strong")
        while page:
            yield page
            if len(page) < SCAN_PAGE:
                return
            last = max(str(row["id"]).encode() for row in page).decode()
            after = f"id > {quote(last)}"
            rest = f"({where}) and {after}" if where else after
            page = self.query(collection, rest, fields, SCAN_PAGE)

    def close(self) -> None:
        """Close the connection; the last one to a Milvus Lite file lets go of the file."""
        with _lite_guard:
            if self.closed:
                return
            self.closed = True
            self.client.close()
            if self.is_lite:
                _lite_users[self.uri] -= 1
                if not _lite_users[self.uri]:
                    del _lite_shared[self.uri]
                    from milvus_lite.server_manager import server_manager_instance

                    server_manager_instance.release_server(self.uri)


@contextmanager
def _said_once() -> Iterator[None]:
    """Keep Milvus Lite from logging, with its traceback, the failure that is raised here."""
    logger = logging.getLogger("milvus_lite.server_manager")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _hits(found: Sequence[Mapping[str, object]]) -> Hits:
    rows = sorted(
        ((str(hit["id"]), float(str(hit["distance"])), hit.get("entity") or {}) for hit in found),
        key=lambda row: (-row[1], row[0]),
    )
    return Hits(
        ids=tuple(row[0] for row in rows),
        similarities=tuple(row[1] for row in rows),
        texts=tuple(
            str(row[2].get("text", "")) if isinstance(row[2], Mapping) else "" for row in rows
        ),
    )


def merged(found: Sequence[Hits], limit: int) -> Hits:
    """Return the `limit` best of several hits on one vector."""
    rows = sorted(
        (row for hits in found for row in zip(hits.similarities, hits.ids, hits.texts)),
        key=lambda row: (-row[0], row[1]),
    )[:limit]
    similarities, ids, texts = zip(*rows) if rows else ((), (), ())
    return Hits(ids=ids, similarities=similarities, texts=texts)


def parts(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield `ids` in order, at most `size` at once."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def _check_place(path: Path) -> None:
    """Make the folder around a Milvus Lite index; say what else is in its way."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_file = path.is_file()
    except OSError as error:
        raise StoreError(
            f"cannot write to {str(path)!r}: {error.strerror}; take another uri"
        ) from error
    if is_file:
        raise StoreError(
            f"{str(path)!r} is a file, and Milvus Lite 3 keeps a folder; take another uri, or "
            "build the index anew if an older Milvus Lite wrote it"
        )


def _resolve_uri(uri: str | Path) -> tuple[str, bool]:
    text = str(uri)
    if isinstance(uri, str) and "://" in text:
        return text, False
    if not text.endswith(".db"):
        raise GraphRAGValueError(
            f"uri={text!r} is neither a path that ends in .db (Milvus Lite) nor a URI such as "
            "http://localhost:19530"
        )
    return str(Path(text).expanduser().resolve()), True
