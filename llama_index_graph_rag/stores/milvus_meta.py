"""What an index in Milvus says of itself: its layout and model, and who wrote when."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from llama_index_graph_rag.errors import StoreError
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.stores.milvus_columns import Columns
from llama_index_graph_rag.stores.milvus_connection import MilvusConnection
from llama_index_graph_rag.stores.milvus_layout import SCHEMA_VERSION

logger = logging.getLogger("llama_index_graph_rag")

SAME_MODEL = 0.99
"""Cosine of two probe vectors from which two embedding models count as the same."""
_SCHEMA_ROW = "schema"
_WRITER_ROW = "writer:"


@dataclass(frozen=True, slots=True)
class About:
    """What an index was made with; fixed for its life.

    `probe` holds the first 512 numbers of the embedding of a fixed text: two models can have the
    same dimension, and one model can go by two names. `id` tells this index from an earlier one
    at the same place, of which matrices may have been kept.
    """

    dimension: int
    metric: str
    embedding_model: str
    probe: tuple[float, ...]
    version: int = SCHEMA_VERSION
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def check(self, dimension: int, embedding_model: str, probe: Sequence[float]) -> None:
        """Raise StoreError if another embedding model is given."""
        stored = np.asarray(self.probe, dtype=np.float64)
        given = np.asarray(probe[: len(stored)], dtype=np.float64)
        same = (
            not stored.size
            or not given.size
            or float(stored @ given)
            >= SAME_MODEL * float(np.linalg.norm(stored) * np.linalg.norm(given))
            if dimension == self.dimension
            else False
        )
        if not same:
            raise StoreError(
                f"this index was built with the embedding model {self.embedding_model!r} "
                f"({self.dimension} dimensions), not with {embedding_model!r} ({dimension} "
                "dimensions); pass the first as embed_model, or build a new index under another "
                "collection_prefix"
            )


@dataclass(frozen=True, eq=False, slots=True)
class Published:
    """A graph, and the writes that it shows."""

    index: str
    sequences: dict[str, str]
    snapshot: GraphSnapshot


class MilvusMeta:
    """The meta collection: one row about the index, and a sequence number for each writer.

    A writer raises its number before it writes (what anyone has cached is void from there on, even
    if it dies half way) and after (who read in between reads again).
    """

    def __init__(self, connection: MilvusConnection, collection: str, cache_dir: Path) -> None:
        self._connection = connection
        self._collection = collection
        self._cache_dir = cache_dir
        self._writer = f"{_WRITER_ROW}{'local' if connection.is_lite else uuid.uuid4().hex}"
        self._kept = self._index = ""
        self._published: Published | None = None
        self.sequences: dict[str, str] = {}

    def read_about(self) -> About | None:
        """Return what the index was made with, None if there is none.

        Raises
        ------
        StoreError
            If a release with another schema wrote it.
        """
        if not self._connection.has(self._collection):
            return None
        self._connection.load(self._collection)
        rows = self._connection.query(self._collection, f'id == "{_SCHEMA_ROW}"', ["id", "value"])
        if not rows:
            return None
        fields = json.loads(str(rows[0]["value"]))
        if fields.get("version") != SCHEMA_VERSION:
            raise StoreError(
                f"{self._collection!r} has schema version {fields.get('version')}, this release "
                f"reads version {SCHEMA_VERSION}; rebuild the index or install the release that "
                "wrote it"
            )
        self._index = str(fields.get("id", ""))
        return About(**{**fields, "probe": tuple(fields["probe"]), "id": self._index})

    def write_about(self, about: About) -> None:
        """Say what the index is made with; from here on it exists."""
        self._put(_SCHEMA_ROW, json.dumps(asdict(about)))
        self._index = about.id

    def bump(self) -> None:
        """Raise this writer's sequence number.

        A random tail tells it from the same number in a copy that went its own way.
        """
        number = int(self.sequences.get(self._writer, "0").partition("-")[0]) + 1
        raised = f"{number}-{uuid.uuid4().hex[:12]}"
        self.sequences = {**self.sequences, self._writer: raised}
        self._put(self._writer, raised)

    def read_sequences(self) -> dict[str, str]:
        """Return the sequence number of every writer."""
        where = f'id != "{_SCHEMA_ROW}"'
        pages = self._connection.scan(self._collection, ["id", "value"], where)
        return {str(row["id"]): str(row["value"]) for page in pages for row in page}

    def _put(self, id: str, value: str) -> None:
        place = np.eye(1, 2, dtype=np.float32)
        self._connection.write(self._collection, Columns({"id": [id], "value": [value]}, place))

    # --- the graph as another store of this process has it ---

    def publish(self, snapshot: GraphSnapshot) -> None:
        """Give the graph to the other stores of a Milvus Lite file."""
        self._published = Published(self._index, self.sequences, snapshot)
        self._connection.shared[self._collection] = self._published

    def news(self) -> Published | None:
        """Return what another store has published, None if nothing since the last time."""
        found = self._connection.shared.get(self._collection)
        if not isinstance(found, Published) or found is self._published:
            return None
        return found if found.index == (self._index or found.index) else None

    def take(self, news: Published) -> GraphSnapshot:
        """Return the graph of another store and go on from there."""
        self.sequences, self._published = news.sequences, news
        return news.snapshot

    # --- the matrices kept between runs ---

    @property
    def _stamp(self) -> str:
        return json.dumps(
            {"schema": SCHEMA_VERSION, "index": self._index, "sequences": self.sequences},
            sort_keys=True,
        )

    def kept_snapshot(self) -> GraphSnapshot | None:
        """Return the matrices kept on disk if nobody has written since, else None."""
        snapshot = GraphSnapshot.load(self._cache_dir, version=self._stamp)
        self._kept = self._stamp if snapshot is not None else ""
        return snapshot

    def forget(self) -> None:
        """Have the matrices kept anew: those on disk are not to be believed."""
        self._kept = ""

    def keep(self, snapshot: GraphSnapshot) -> None:
        """Keep the matrices on disk for the next start; a failure costs time, nothing else."""
        if self._kept == self._stamp:
            return
        try:
            snapshot.save(self._cache_dir, version=self._stamp)
            self._kept = self._stamp
        except (OSError, ValueError) as error:
            logger.warning("the graph's matrices could not be kept, opening is slower: %s", error)


def cache_folder(connection: MilvusConnection, prefix: str, given: str | Path | None) -> Path:
    """Return where the matrices of an index are kept."""
    if connection.is_lite and given is None:
        return Path(f"{connection.uri}.matrices") / prefix
    place = f"{connection.uri}\n{connection.db_name}"
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    if given is not None:
        return Path(given) / name / prefix
    import platformdirs

    return Path(platformdirs.user_cache_dir("llama_index_graph_rag")) / name / prefix
