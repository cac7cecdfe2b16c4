"""A snapshot on disk: written whole or not at all, read only if it is whole.

Its vectors lie beside it, a file a chunk, written once and mapped into memory: to save what was
added costs what was added, however large the rest.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.graph.adjacency import Adjacency
from llama_index_graph_rag.graph.incidence import Incidence
from llama_index_graph_rag.graph.passages import PassageTable
from llama_index_graph_rag.graph.tables import KeyTable, TextTable
from llama_index_graph_rag.graph.vectors import Chunk, VectorTable, VectorTables

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

logger = logging.getLogger("llama_index_graph_rag")

FILE_NAME = "graph-snapshot.npz"
_FORMAT = 2
_CHUNKS = "vectors-*.npy"
_ABANDONED = 3600.0
"""Seconds after which nobody is writing a temporary file any more."""

Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]


def save(graph: GraphSnapshot, folder: str | Path, version: str) -> None:
    """Write `graph` to files in `folder`; what was there counts until all is written."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    graph = graph.merged()
    chunks = {
        kind: [(chunk.name, len(chunk)) for chunk in table.chunks]
        for kind, table in _tables(graph).items()
    }
    header = {
        "format": _FORMAT,
        "version": version,
        "dangling": graph.dangling,
        "dimension": graph.vectors.entities.dimension if graph.vectors else 0,
        "chunks": chunks,
    }
    arrays = _taken_apart(graph)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    every = [chunk for table in _tables(graph).values() for chunk in table.chunks]
    named = {_chunk_path(target, chunk.name): chunk for chunk in every}
    written: list[Path] = []
    try:
        for path, chunk in named.items():
            if not path.exists():
                written.append(path)
                _write(path, partial(np.save, arr=chunk.vectors))
        _write(target / FILE_NAME, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    except BaseException:  # on a full disk they would be in the way of everything else
        for path in written:
            path.unlink(missing_ok=True)
        raise
    for path in (set(target.glob(_CHUNKS)) - named.keys()) | set(target.glob("*.part")):
        try:
            if path.suffix == ".npy" or time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink(missing_ok=True)
        except OSError as error:  # Windows keeps what is mapped; the next time it will go
            logger.debug("%s is not needed any more and stays: %s", path, error)


def _write(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a temporary file, then rename it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _chunk_path(folder: Path, name: str) -> Path:
    return folder / _CHUNKS.replace("*", name)


def _tables(graph: GraphSnapshot) -> dict[str, VectorTable]:
    return graph.vectors._asdict() if graph.vectors else {}


def load(folder: str | Path, version: str | None) -> GraphSnapshot | None:
    """Read what `save` wrote; None if it is not there, not this version, or damaged."""
    path = Path(folder) / FILE_NAME
    try:
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            if header["format"] != _FORMAT or version not in (None, header["version"]):
                return None
            # Reading an array whole checks its checksum.
            arrays = {name: file[name] for name in file.files}
        vectors = _mapped(path.parent, header, arrays) if header["dimension"] else None
        return _put_together(arrays, header["dangling"], vectors)
    except Exception as error:  # there is no end to what a damaged zip file can raise
        reason = f"{type(error).__name__}: {error}"[:200]
        logger.warning("%s cannot be read or is damaged, and was not used (%s)", path, reason)
        return None


def _mapped(folder: Path, header: Header, arrays: Arrays) -> VectorTables:
    dimension, tables = header["dimension"], {}
    for kind, chunks in header["chunks"].items():
        found = tuple(_chunk(_chunk_path(folder, name), name, (n, dimension)) for name, n in chunks)
        tables[kind] = VectorTable(dimension, found, arrays[f"{kind}.places"])
    return VectorTables(**tables)


def _chunk(path: Path, name: str, shape: tuple[int, int]) -> Chunk:
    vectors = np.load(path, mmap_mode="r")
    if vectors.dtype != np.float32 or vectors.shape != shape:
        raise ValueError(f"{path.name} holds {vectors.dtype} of shape {vectors.shape}")
    return Chunk(vectors, name)


def _taken_apart(graph: GraphSnapshot) -> Arrays:
    passages, incidence = graph.passages, graph.incidence
    arrays: Arrays = {
        "subjects": incidence.subjects,
        "objects": incidence.objects,
        "owners": passages.owners,
        "entities": graph.entities.base,
        "relations": graph.relations.base,
        "passages": passages.keys.base,
        "documents": passages.document_keys.base,
    }
    adjacencies = {
        "entity_relations": incidence.entity_relations,
        "relation_passages": incidence.relation_passages,
        "passage_relations": incidence.passage_relations,
        "members": passages.members,
    }
    for name, part in adjacencies.items():
        arrays[f"{name}.indptr"], arrays[f"{name}.indices"] = part.indptr, part.indices
    texts = {
        "entity_names": graph.entity_names,
        "passage_ids": passages.ids,
        "content_hashes": passages.content_hashes,
        "document_hashes": passages.document_hashes,
        "document_ids": passages.document_ids,
    }
    for name, table in texts.items():
        arrays[f"{name}.buffer"], arrays[f"{name}.offsets"] = table.buffer, table.offsets
    for kind, vectors in _tables(graph).items():
        arrays[f"{kind}.places"] = vectors.places
    return arrays


def _put_together(arrays: Arrays, dangling: int, vectors: VectorTables | None) -> GraphSnapshot:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

    def adjacency(name: str) -> Adjacency:
        indptr = arrays[f"{name}.indptr"]
        return Adjacency(len(indptr) - 1, indptr, arrays[f"{name}.indices"])

    def texts(name: str) -> TextTable:
        return TextTable(arrays[f"{name}.buffer"], arrays[f"{name}.offsets"])

    return GraphSnapshot(
        Incidence(
            arrays["subjects"],
            arrays["objects"],
            adjacency("entity_relations"),
            adjacency("relation_passages"),
            adjacency("passage_relations"),
        ),
        texts("entity_names"),
        KeyTable(arrays["entities"]),
        KeyTable(arrays["relations"]),
        PassageTable(
            KeyTable(arrays["passages"]),
            texts("passage_ids"),
            texts("content_hashes"),
            texts("document_hashes"),
            arrays["owners"],
            KeyTable(arrays["documents"]),
            texts("document_ids"),
            adjacency("members"),
        ),
        dangling,
        vectors,
    )
