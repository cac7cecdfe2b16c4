"""Rows to write in tests of stores, with vectors made from texts."""

from __future__ import annotations

import numpy as np
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_graph_rag.identity import clean_text
from llama_index_graph_rag.stores.base import (
    Batch,
    EntityRow,
    GraphIndexStore,
    PassageRow,
    RelationRow,
    Vectors,
)
from llama_index_graph_rag.testing.openai_server import hash_embedding
from llama_index_graph_rag.testing.toy_graphs import ToyGraph
from llama_index_graph_rag.triplets import Mention, Triplet

DIMENSION = 16
MODEL = "the model of the suite"
PROBE = tuple(hash_embedding("a fixed text", DIMENSION).tolist())
EULER = ("Euler", "was a student of", "Johann Bernoulli")
DANIEL = ("Daniel Bernoulli", "was the son of", "Johann Bernoulli")
BASEL = ("Euler", "was born in", "Basel")


def passage_row(
    id: str,
    *triplets: tuple[str, str, str],
    text: str = "",
    document: str | None = None,
    **metadata: object,
) -> PassageRow:
    """Return a passage to write, whose embedding is made from its text.

    Examples
    --------
    >>> passage_row("p1", ("Euler", "lived in", "Basel")).node.text
    'Euler lived in Basel'
    """
    stated = [Triplet(*triplet) for triplet in triplets]
    node = TextNode(
        id_=id, text=text or ". ".join(t.text for t in stated) or id[:80], metadata=metadata
    )
    if document is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    return PassageRow(
        node=node,
        embedding=vector(node.text),
        relation_ids=tuple(triplet.id for triplet in stated),
        mentions=tuple(map(Mention, stated)),
        content_hash=f"content of {id[:80]}",
    )


def batch(*passages: PassageRow) -> Batch:
    """Return passages with all entities and relations that they rely on, ready to write.

    Examples
    --------
    >>> written = batch(passage_row("p1", ("Euler", "lived in", "Basel")))
    >>> [row.text for row in written.entities]
    ['Euler', 'Basel']
    """
    triplets = {m.triplet.id: m.triplet for row in passages for m in row.mentions}
    names: dict[str, str] = {}
    for triplet in triplets.values():
        names.setdefault(triplet.subject_id, triplet.subject)
        names.setdefault(triplet.object_id, triplet.object)
    return Batch(
        entities=[EntityRow(id, name, vector(name)) for id, name in names.items()],
        relations=[
            RelationRow(id, t.subject_id, t.object_id, *t, embedding=vector(t.text))
            for id, t in triplets.items()
        ],
        passages=passages,
    )


def toy_batch(toy: ToyGraph) -> Batch:
    """Return a toy graph ready to write, for a store that is a GraphReader too.

    Examples
    --------
    >>> from llama_index_graph_rag.testing.toy_graphs import CYCLE
    >>> len(toy_batch(CYCLE).relations)
    4
    """
    rows = (
        PassageRow(
            node=TextNode(id_=passage.id, text=passage.text),
            embedding=vector(passage.text),
            relation_ids=tuple(triplet.id for triplet in passage.triplets),
            mentions=passage.mentions,
            content_hash="",
        )
        for passage in toy.passages
    )
    return batch(*rows)


def vector(text: str) -> list[float]:
    """Return the embedding of a text: of unit length, from its words."""
    return [float(value) for value in hash_embedding(clean_text(text), DIMENSION)]


def vectors(*texts: str) -> Vectors:
    """Return the embeddings of texts, shape (n, DIMENSION)."""
    return np.array([vector(text) for text in texts], dtype=np.float32)


def empty(store: GraphIndexStore) -> None:
    """Delete every passage of a store and what only they stated."""
    store.refresh()
    store.delete_passages([key.id for page in store.scan_passages() for key in page])
    store.vacuum()
