"""The default store: an index of ours in Milvus Lite, a Milvus server or a cluster."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.snapshot import EntityKey, GraphSnapshot, PassageKey, RelationKey
from llama_index_graph_rag.stores import milvus_layout as layout
from llama_index_graph_rag.stores.base import Vectors
from llama_index_graph_rag.stores.milvus_connection import SCAN_PAGE, MilvusConnection, parts
from llama_index_graph_rag.stores.milvus_meta import About, MilvusMeta, cache_folder
from llama_index_graph_rag.stores.milvus_writing import BULK_ROWS, MilvusWriting
from llama_index_graph_rag.stores.vector_copy import Kind

if TYPE_CHECKING:
    from llama_index.vector_stores.milvus import MilvusVectorStore

K = TypeVar("K", EntityKey, RelationKey, PassageKey)

MAX_DIMENSION = 32_768
REST = 4
"""How many times longer than it read all a reader goes on with it before it reads all again."""


class MilvusGraphStore(MilvusWriting):
    """An index of ours in Milvus; as a GraphReader it walks matrices in memory.

    Writes through one store exclude each other, on Milvus Lite those of all stores of the file;
    readers never wait, they see the graph of before or of after a write. Several processes may
    write to a server: call `refresh` to see the others. It reads all ids and links again where
    others wrote, as does each call that writes: where several processes write, write much at once.

    On Milvus Lite with a FLAT index the vectors are kept with the matrices too and searched there:
    as exact as Milvus Lite, which visits every row in Python, and many times faster. They take 4
    bytes a number, in memory for what this process wrote, in files mapped into memory for what was
    there when it opened. Another `index_config` has Milvus search.

    Parameters
    ----------
    uri
        A Milvus Lite path that ends in ``.db`` (its folder is created), or the URI of a Milvus
        server, a cluster or Zilliz Cloud. Default ``"./graph_rag.db"``.
    token
        ``user:password`` or an API key, for a server.
    db_name
        Database on the server; empty for the default one.
    collection_prefix
        The index's collections are called ``<prefix>_entities`` and so on, so that one Milvus
        holds many indexes. Letters, digits and underscores.
    metric
        ``"COSINE"`` or ``"IP"``, which is faster and of vectors that are made unit vectors when
        they are written, so that similarities are cosines with both. Fixed when the index is made.
        Default: that of the index, COSINE for a new one.
    index_config
        Milvus index for new collections, such as ``{"index_type": "HNSW", "params": {"M": 16,
        "efConstruction": 200}}``. Default: FLAT (exact) on Milvus Lite, AUTOINDEX on a server.
    cache_dir
        Where the graph's matrices, and the vectors with them, are kept between runs. Default:
        beside a Milvus Lite file, else the user's cache folder.
    timeout
        Seconds to wait for the connection; None waits as pymilvus does.

    Raises
    ------
    GraphRAGValueError
        If `uri` or an option is none of those above, or the index was made with another metric or
        index type.
    StoreError
        If Milvus cannot be reached, another process has the Milvus Lite file open, or the
        collections hold something else.

    Examples
    --------
    >>> import tempfile
    >>> store = MilvusGraphStore(tempfile.mkdtemp() + "/demo.db")
    >>> store.exists, store.stats()["passages"]
    (False, 0)
    >>> store.close()
    """

    def __init__(
        self,
        uri: str | Path = "./graph_rag.db",
        *,
        token: str = "",
        db_name: str = "",
        collection_prefix: str = "graph_rag",
        metric: str | None = None,
        index_config: Mapping[str, object] | None = None,
        cache_dir: str | Path | None = None,
        timeout: float | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", collection_prefix):
            raise GraphRAGValueError(
                f"collection_prefix={collection_prefix!r} is not 1 to 200 letters, digits or "
                "underscores that start with a letter"
            )
        if metric not in (None, "COSINE", "IP"):
            raise GraphRAGValueError(f"metric={metric!r} is neither 'COSINE' nor 'IP'")
        super().__init__()
        self.collections = layout.Collections(collection_prefix)
        self.connection = MilvusConnection(uri, token=token, db_name=db_name, timeout=timeout)
        self.about: About | None = None
        self._metric = metric
        self._index_config = dict(index_config or {})
        self._lock = self.connection.write_lock
        self._snapshot = self._start = GraphSnapshot.empty()
        self._unflushed = self._unkept = 0
        self._rests_until = 0.0
        self._torn = False
        self._meta = MilvusMeta(
            self.connection,
            self.collections.meta,
            cache_folder(self.connection, collection_prefix, cache_dir),
        )
        try:
            with self._lock:
                self._open()
        except BaseException:  # interrupted too: the file must not stay locked
            self.connection.close()
            raise

    def __repr__(self) -> str:
        return (
            f"MilvusGraphStore({self.connection.place!r}, "
            f"collection_prefix={self.collections.prefix!r})"
        )

    # --- opening and closing --------------------------------------------------------------------

    def _open(self) -> None:
        about = self._meta.read_about()
        if about is None:
            return
        self._check_options(about)
        for name in self.collections.with_vectors:
            self.connection.load(name)
        self._meta.sequences = self._meta.read_sequences()
        self._start = self._empty(about.dimension)
        news = self._meta.news()
        if news is not None and news.sequences == self._meta.sequences:
            self._snapshot = self._meta.take(news)
        else:
            kept = self._meta.kept_snapshot()
            if kept is None:
                self._mend()
                kept = self._scanned()
                self._meta.keep(kept)
            self._snapshot = kept
            self._meta.publish(kept)
        self.about = about

    def _mend(self) -> None:
        """Put right what a kill within a flush of Milvus Lite leaves.

        It may have sealed the rows and not the older deletions of the same ids; looked up by id,
        such rows are not found until deletions are sealed too, for which there must be one.
        """
        if self.connection.is_lite:
            for name in self.collections.with_vectors:
                self.connection.delete(name, [uuid.uuid4().hex])
                self.connection.flush(name)

    def _empty(self, dimension: int) -> GraphSnapshot:
        """Return the graph without anything; with vectors where they are searched in the copy."""
        lite = self.connection.is_lite
        copies = lite and self.connection.index_type(self.collections.passages) == "FLAT"
        return GraphSnapshot.empty(dimension if copies else 0)

    def _check_options(self, about: About) -> None:
        made = {"metric": about.metric}
        given: dict[str, object] = {"metric": self._metric or about.metric}
        wanted = self._index_config.get("index_type", "AUTOINDEX")
        if wanted != "AUTOINDEX":  # which is Milvus's own choice
            made["index type"] = self.connection.index_type(self.collections.passages)
            given["index type"] = wanted
        for option, value in made.items():
            if given[option] != value:
                raise GraphRAGValueError(
                    f"{option} {given[option]!r} was asked for, but {self!r} was made with "
                    f"{value!r}, which stays; leave the option out, or build a new index under "
                    "another collection_prefix"
                )

    def create(
        self, dimension: int, *, embedding_model: str = "", probe: Sequence[float] = ()
    ) -> None:
        """Create the collections; where they are there, check that they fit.

        Parameters
        ----------
        dimension
            Length of the embeddings.
        embedding_model
            Name of the model they come from, for messages.
        probe
            The model's embedding of a fixed text, by which the model is recognised.

        Raises
        ------
        GraphRAGValueError
            If Milvus cannot hold vectors of this length.
        StoreError
            If the index was built with another model, or collections of this prefix hold
            something else.
        """
        if not 1 <= dimension <= MAX_DIMENSION:
            raise GraphRAGValueError(
                f"the embedding model {embedding_model!r} gives vectors of {dimension} dimensions, "
                f"Milvus holds 1 to {MAX_DIMENSION:,}; use another embed_model"
            )
        with self._lock:
            if self.about is None:
                self._open()  # another process may have created it meanwhile
            if self.about is not None:
                self.about.check(dimension, embedding_model, probe)
                return
            metric = self._metric or "COSINE"
            default = {"index_type": "FLAT" if self.connection.is_lite else "AUTOINDEX"}
            for name, fields in self.collections.fields.items():
                self.connection.create(
                    name,
                    fields,
                    dimension=2 if name == self.collections.meta else dimension,
                    metric=metric,
                    index=self._index_config or default,
                    dynamic=name == self.collections.passages,
                )
            short = tuple(round(float(value), 5) for value in probe[:512])
            about = About(dimension, metric, embedding_model, short)
            self._meta.write_about(about)
            self._snapshot = self._start = self._empty(dimension)
            self.about = about

    def close(self) -> None:
        """Flush, keep the matrices for the next start, and let go of a Milvus Lite file.

        What needs Milvus fails from then on; closing again does nothing. Vector stores that
        `passage_vector_store` gave end with the last store of a Milvus Lite file.
        """
        with self._lock:
            if self.connection.closed:
                return
            try:
                # On Lite always: another store of the file may have rows that are not sealed.
                self._flush(0 if self.connection.is_lite else BULK_ROWS, least_kept=0)
            finally:
                self.connection.close()

    def passage_vector_store(self) -> MilvusVectorStore:
        """Return LlamaIndex's own Milvus vector store over our passages: plain vector RAG.

        Write through the index, not through it: it knows nothing of entities and relations.
        """
        from llama_index_graph_rag.stores.milvus_passages import PassageVectorStore

        about, connection = self._opened, self.connection
        options: dict[str, Any] = {"db_name": connection.db_name} if connection.db_name else {}
        return PassageVectorStore(
            uri=connection.uri,
            token=connection.token,
            collection_name=self.collections.passages,
            dim=about.dimension,
            similarity_metric=about.metric,
            upsert_mode=True,
            **options,
        )

    # --- the graph ------------------------------------------------------------------------------

    def snapshot(self) -> GraphSnapshot:
        """Return the graph as it is now, immutable."""
        self._hear()
        return self._snapshot

    def refresh(self, *, full: bool = False, wait: bool = True) -> bool:
        """Take in what other writers wrote (one small query where nothing changed).

        `full` reads all collections again: someone may have changed them behind our back.
        Without `wait` nothing is done while this process writes, nor so soon after the last time
        that steady writers elsewhere would keep a reader reading.
        """
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            if not wait and time.monotonic() < self._rests_until:
                return False
            if not self.exists:
                self._open()
                return self.exists
            sequences = self._meta.read_sequences()
            if sequences == self._meta.sequences and not self._torn and not full:
                return False
            news = self._meta.news()
            if news is not None and news.sequences == sequences and not full:
                self._take(news)
                return True
            started = time.monotonic()
            self._torn = True  # until all is read: these numbers are of a graph not seen yet
            self._meta.sequences = sequences
            self._snapshot = self._scanned()
            self._torn = False
            self._meta.publish(self._snapshot)
            self._meta.forget()
            if self.connection.is_lite:
                self._unkept = self._snapshot.n_relations  # when next all is sealed
            else:
                self._meta.keep(self._snapshot)
                self._unkept = 0
            now = time.monotonic()
            self._rests_until = now + REST * (now - started)
            return True
        finally:
            self._lock.release()

    def _scanned(self) -> GraphSnapshot:
        # Against the order of writing: whatever a passage states was there before it.
        passages = [key for page in self.scan_passages() for key in page]
        relations = [key for page in self.scan_relations() for key in page]
        entities = [key for page in self.scan_entities() for key in page]
        if self._start.vectors is not None:
            passages = self._with_vectors("passages", passages)
            relations = self._with_vectors("relations", relations)
            entities = self._with_vectors("entities", entities)
        return self._start.with_changes(entities=entities, relations=relations, passages=passages)

    def _with_vectors(self, kind: Kind, keys: Sequence[K]) -> list[K]:
        """Return the keys with their vectors, a page at a time: pymilvus unpacks into lists."""
        found: dict[str, Vectors] = {}
        for part in parts([key.id for key in keys], SCAN_PAGE):
            found |= self._stored_vectors(kind, part)
        # What has no vector was deleted since: the sequence numbers will tell.
        return [key._replace(vector=found[key.id]) for key in keys if key.id in found]

    def stats(self) -> dict[str, int]:
        """Return passages, entities, relations, orphan_entities and orphan_relations."""
        return self.snapshot().stats()
