"""A snapshot as one file: written whole or not at all, read only if it is whole."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llama_index_graph_rag.graph.adjacency import Adjacency
from llama_index_graph_rag.graph.incidence import Incidence
from llama_index_graph_rag.graph.passages import PassageTable
from llama_index_graph_rag.graph.tables import KeyTable, TextTable

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot

logger = logging.getLogger("llama_index_graph_rag")

FILE_NAME = "graph-snapshot.npz"
_FORMAT = 1

Arrays = dict[str, NDArray[Any]]


def save(graph: GraphSnapshot, folder: str | Path, version: str) -> None:
    """Write `graph` to a temporary file in `folder`, then rename it."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    header = {"format": _FORMAT, "version": version, "dangling": graph.dangling}
    arrays = _taken_apart(graph.merged())
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    handle, temporary = tempfile.mkstemp(dir=target, prefix=FILE_NAME, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target / FILE_NAME)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(folder: str | Path, version: str | None) -> GraphSnapshot | None:
    """Read what `save` wrote; None if it is not there, not this version, or damaged."""
    path = Path(folder) / FILE_NAME
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            if header["format"] != _FORMAT or version not in (None, header["version"]):
                return None
            # Reading an array whole checks its checksum.
            return _put_together({name: file[name] for name in file.files}, header["dangling"])
    except Exception as error:  # there is no end to what a damaged zip file can raise
        reason = f"{type(error).__name__}: {error}"[:200]
        logger.warning("%s is damaged and was not used (%s)", path, reason)
        return None


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
    return arrays


def _put_together(arrays: Arrays, dangling: int) -> GraphSnapshot:
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
    )
