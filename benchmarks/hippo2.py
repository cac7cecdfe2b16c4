"""Plain reference of HippoRAG 2's ranking without its LLM filter; for comparison only.

Nodes are entities and passages, edges undirected: entities that a relation joins (one a relation),
passage and entity (1), entities whose cosine is 0.8 or more (their cosine, 100 nearest each).
Restart: with f = minmax(q . relations), each of the `n_facts` best gives its endpoints
f / (passages with that entity), averaged an entity, 5 entities kept; every passage gets
0.05 minmax(q . passage). PageRank with damping 0.5; no facts: the dense order.

B. Gutierrez et al., "From RAG to Memory: Non-Parametric Continual Learning for Large Language
Models", 2025.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from numpy.typing import NDArray

from llama_index_graph_rag.triplets import Triplet, unique_triplets

Array = NDArray[np.float32]
Rows = NDArray[np.integer]


class HippoRAG2:
    """The reference over arrays in memory.

    Parameters
    ----------
    entities, relations, passages
        Unit vectors, one row each.
    subjects, objects
        Entity row of each relation's ends.
    stated
        Pairs (passage row, relation row), shape (n, 2).
    n_facts
        Relations that seed.
    """

    def __init__(
        self,
        entities: Array,
        relations: Array,
        passages: Array,
        subjects: Rows,
        objects: Rows,
        stated: Rows,
        *,
        n_facts: int = 5,
    ) -> None:
        self.relations, self.passages, self.n_facts = relations, passages, n_facts
        self.ends = np.stack([subjects, objects], axis=1)
        self.n_entities = n = len(entities)
        holders = np.repeat(stated[:, 0], 2), self.ends[stated[:, 1]].ravel()
        contains = sp.csr_matrix(
            (np.ones(len(holders[0]), np.float32), holders), shape=(len(passages), n)
        )
        contains.data[:] = 1
        self.frequency = np.maximum(np.asarray(contains.sum(axis=0)).ravel(), 1)
        joined = sp.csr_matrix((np.ones(len(subjects)), (subjects, objects)), shape=(n, n))
        joined = joined + joined.T + synonyms(entities)
        joined.setdiag(0)
        edges = sp.bmat([[joined, contains.T], [contains, None]]).tocsr()
        degree = np.asarray(edges.sum(axis=1)).ravel()
        even = sp.diags(np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0))
        self.step = (even @ edges).T.tocsr().astype(np.float32)

    def rank(self, question: Array, *, limit: int = 10, iterations: int = 30) -> Rows:
        """Return the rows of the best passages."""
        closeness = _minmax(self.relations @ question)
        seeds: dict[int, list[float]] = {}
        for row in np.argsort(-closeness, kind="stable")[: self.n_facts].tolist():
            for entity in set(self.ends[row].tolist()):
                seeds.setdefault(entity, []).append(closeness[row] / self.frequency[entity])
        weights = {entity: float(np.mean(values)) for entity, values in seeds.items()}
        best = sorted(weights, key=lambda entity: (-weights[entity], entity))[:5]
        dense = _minmax(self.passages @ question)
        if not best:
            return np.argsort(-dense, kind="stable")[:limit]
        reset = np.concatenate([np.zeros(self.n_entities), 0.05 * dense]).astype(np.float32)
        reset[best] = [weights[entity] for entity in best]
        reset /= reset.sum()
        mass = reset
        for _ in range(iterations):
            mass = 0.5 * (self.step @ mass) + 0.5 * reset
        return np.argsort(-mass[self.n_entities :], kind="stable")[:limit]


def synonyms(entities: Array, *, cutoff: float = 0.8, limit: int = 100) -> sp.csr_matrix:
    """Return the cosines of at least `cutoff` between entities, the `limit` nearest of each."""
    blocks = []
    for start in range(0, len(entities), 1_000):
        cosines = entities[start : start + 1_000] @ entities.T
        cosines[np.arange(len(cosines)), np.arange(start, start + len(cosines))] = 0
        if limit < cosines.shape[1]:
            least = np.partition(cosines, -limit, axis=1)[:, -limit][:, None]
            cosines[cosines < np.maximum(least, cutoff)] = 0
        cosines[cosines < cutoff] = 0
        blocks.append(sp.csr_matrix(cosines))
    found = sp.vstack(blocks).tocsr()
    return found.maximum(found.T)


def _minmax(values: Array) -> Array:
    spread = values.max() - values.min()
    return (values - values.min()) / spread if spread > 0 else np.ones_like(values)


class Hippo2Retriever(BaseRetriever):
    """The reference as a retriever over nodes and their triplets.

    Parameters
    ----------
    nodes
        The passages.
    triplets
        ``triplets[i]`` are those of ``nodes[i]``.
    embed_model
        Embeds passages, relations, entity names and questions.
    similarity_top_k
        Passages to return.
    """

    def __init__(
        self,
        nodes: Sequence[TextNode],
        triplets: Sequence[Sequence[Triplet]],
        *,
        embed_model: BaseEmbedding,
        similarity_top_k: int = 10,
    ) -> None:
        super().__init__()
        self._nodes, self._embed_model, self._top_k = nodes, embed_model, similarity_top_k
        entities: dict[str, str] = {}
        relations: dict[str, Triplet] = {}
        stated: list[tuple[str, int]] = []
        for passage, of_passage in enumerate(triplets):
            for triplet in unique_triplets(of_passage)[0]:
                entities.setdefault(triplet.subject_id, triplet.subject)
                entities.setdefault(triplet.object_id, triplet.object)
                relations.setdefault(triplet.id, triplet)
                stated.append((triplet.id, passage))
        entity_row = {id: row for row, id in enumerate(entities)}
        relation_row = {id: row for row, id in enumerate(relations)}
        self._reference = HippoRAG2(
            self._embedded(list(entities.values())),
            self._embedded([triplet.text for triplet in relations.values()]),
            self._embedded([node.get_content(MetadataMode.EMBED) for node in nodes]),
            np.array([entity_row[triplet.subject_id] for triplet in relations.values()]),
            np.array([entity_row[triplet.object_id] for triplet in relations.values()]),
            np.array([(passage, relation_row[id]) for id, passage in stated]),
        )

    def _embedded(self, texts: list[str]) -> Array:
        return _units(np.array(self._embed_model.get_text_embedding_batch(texts), np.float32))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        vector = query_bundle.embedding
        if vector is None:
            vector = self._embed_model.get_agg_embedding_from_queries(query_bundle.embedding_strs)
        question = _units(np.array([vector], np.float32))[0]
        rows = self._reference.rank(question, limit=self._top_k).tolist()
        return [
            NodeWithScore(node=self._nodes[row], score=1 / place)
            for place, row in enumerate(rows, start=1)
        ]


def _units(vectors: Array) -> Array:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
