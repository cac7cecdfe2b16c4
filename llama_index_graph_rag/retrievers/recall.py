"""From a question to what it recalls: vectors, entities and hits, as a process of steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores import MetadataFilters

from llama_index_graph_rag.errors import GraphRAGError, GraphRAGValueError
from llama_index_graph_rag.extractors.query import EntityExtractor, QueryEntities
from llama_index_graph_rag.graph.adjacency import Mask
from llama_index_graph_rag.graph.ranking.base import Recall, Rows, Scored
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.identity import clean_text
from llama_index_graph_rag.query_state import GraphRAGTrace
from llama_index_graph_rag.retrievers.options import MAX_WINDOW, QueryOptions
from llama_index_graph_rag.steps import Process, Step, adrive, call, drive, perform, together
from llama_index_graph_rag.stores.base import GraphIndexStore, Hits, Limits, SearchResult, Vectors
from llama_index_graph_rag.trace import TracedHit

logger = logging.getLogger("llama_index_graph_rag")

T = TypeVar("T")

TRACED = 50
"""Hits of each kind that a trace keeps."""
FILTERED_FACTOR = 10
"""How many times more relations are asked for under a filter: they carry no metadata."""


@dataclass(frozen=True, slots=True)
class Recaller:
    """What is needed to recall: the store, the embedder, the extractor and the numbers."""

    store: GraphIndexStore
    embed_model: Callable[[], BaseEmbedding]
    entity_extractor: EntityExtractor
    options: QueryOptions
    filters: MetadataFilters | None = None

    def recall(
        self, bundle: QueryBundle, trace: GraphRAGTrace
    ) -> Process[tuple[GraphSnapshot, Recall]]:
        """Return the snapshot that the question works on, and what it recalls there."""
        mask_ids = yield from self._permitted(trace)
        (vector, found), entities = yield from perform(
            together(
                _as_step(lambda: self._search(bundle, trace)),
                _as_step(lambda: self._entities(trace)),
            )
        )
        every = self.options.search_known_entities
        names = [entity.name for entity in entities if every or not entity.entity_ids]
        near = (yield from self._near_entities(names, trace)) if names else ()
        graph = yield from self._graph(found, trace)
        mask = None
        if mask_ids is not None:
            mask = np.zeros(graph.n_passages, dtype=np.bool_)
            rows = graph.passage_rows(sorted(mask_ids))
            mask[rows[rows >= 0]] = True
        seeds = self._seeds(graph, entities, near, trace)
        relations = _known(
            graph.relation_rows, found.relations, self.options.relation_similarity_cutoff
        )
        visible = graph.incidence.is_visible(relations.rows)
        passages = _known(graph.passage_rows, found.passages)
        if mask is not None:
            visible &= _any_permitted(graph, relations.rows, mask)
            passages = _kept(passages, mask[passages.rows])
            self._count_forbidden(visible, trace)
        relations = _kept(relations, visible, self.options.relation_top_k)
        trace.relations = _traced(found.relations, graph.relation_ids(relations.rows))
        trace.passages = _traced(found.passages, graph.passage_ids(passages.rows))
        return graph, Recall(trace.question, vector, relations, passages, seeds, mask)

    def _count_forbidden(self, visible: Mask, trace: GraphRAGTrace) -> None:
        permitted = int(visible.sum())
        if permitted < len(visible):
            trace.dropped.append(
                f"filter: {len(visible) - permitted} of the {len(visible)} relations nearest to "
                "the question have no permitted passage"
            )
        asked = min(MAX_WINDOW, FILTERED_FACTOR * self.options.relation_top_k)
        if permitted < self.options.relation_top_k and len(visible) >= asked:
            trace.dropped.append(
                f"filter: {permitted} relations are left of the {self.options.relation_top_k} "
                "wanted; there may be more, further away"
            )

    @property
    def active_filters(self) -> MetadataFilters | None:
        """The filters, None if there are none."""
        return self.filters if self.filters is not None and self.filters.filters else None

    def _permitted(self, trace: GraphRAGTrace) -> Process[frozenset[str] | None]:
        filters = self.active_filters
        if filters is None:
            return None
        trace.calls["filter"] += 1  # the store remembers: mostly no call to Milvus
        with trace.timed("filters"):
            return (yield from call(self.store.permitted, self.store.apermitted, filters))

    def _search(
        self, bundle: QueryBundle, trace: GraphRAGTrace
    ) -> Process[tuple[Vectors, SearchResult]]:
        vector = yield from self._question_vector(bundle, trace)
        options, filters = self.options, self.active_filters
        factor = FILTERED_FACTOR if filters else 1
        limits = Limits(
            relations=min(MAX_WINDOW, factor * options.relation_top_k),
            passages=options.passage_top_k,
        )
        found = yield from search(
            self.store,
            trace,
            relations=vector[None, :],
            passages=vector[None, :],
            limits=limits,
            filters=filters,
        )
        return vector, found

    def _question_vector(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[Vectors]:
        # A sibling in a fusion may have left the vector of another model on the bundle.
        if bundle.embedding is not None and len(bundle.embedding) == self.store.dimension:
            return unit_vector(bundle.embedding)
        model = self.embed_model()
        texts = [clean_text(text).strip() for text in bundle.embedding_strs]
        trace.calls["embedding"] += 1
        with trace.timed("embedding"):
            if len(texts) == 1:
                vector = yield from call(
                    model.get_query_embedding, model.aget_query_embedding, texts[0]
                )
            else:
                vector = yield from call(
                    model.get_agg_embedding_from_queries,
                    model.aget_agg_embedding_from_queries,
                    texts,
                )
        return unit_vector(vector)

    def _entities(self, trace: GraphRAGTrace) -> Process[QueryEntities]:
        graph = self.store.snapshot()
        with trace.timed("entities"):
            try:
                found = yield from call(
                    self.entity_extractor.extract,
                    self.entity_extractor.aextract,
                    trace.question,
                    graph,
                )
            except GraphRAGError:
                raise
            # Whatever a user's extractor calls may be down: that costs quality, not the answer.
            except Exception as error:
                found = QueryEntities(reason=f"the extractor failed: {error!r:.200}")
                logger.warning("entities of the question: %s", found.reason)
        if found.llm_calls:
            trace.calls["llm"] += found.llm_calls
            trace.tokens["prompt"] += found.prompt_tokens
            trace.tokens["completion"] += found.completion_tokens
        if found.reason:
            trace.fallbacks.append(f"query entities: {found.reason}")
        return found

    def _near_entities(
        self, names: Sequence[str], trace: GraphRAGTrace
    ) -> Process[tuple[Hits, ...]]:
        if not self.options.entity_top_k:
            return ()
        model = self.embed_model()
        trace.calls["embedding"] += 1
        with trace.timed("embedding"):
            embeddings = yield from call(
                model.get_text_embedding_batch, model.aget_text_embedding_batch, list(names)
            )
        if len({len(embedding) for embedding in embeddings}) != 1:
            raise GraphRAGValueError(
                f"the embedding model {model.model_name!r} returned vectors of different lengths, "
                "or none; use a model that returns one of the same length for each text"
            )
        vectors = np.asarray(embeddings, dtype=np.float32)
        limits = Limits(entities=self.options.entity_top_k)
        found = yield from search(self.store, trace, entities=vectors, limits=limits)
        return found.entities

    def _graph(self, found: SearchResult, trace: GraphRAGTrace) -> Process[GraphSnapshot]:
        graph = self.store.snapshot()
        if not _count_unknown(graph, found):
            return graph
        trace.calls["store.refresh"] += 1
        with trace.timed("refresh"):
            # Who asks does not wait for who writes.
            yield from call(self.store.refresh, self.store.arefresh, wait=False)
        graph = self.store.snapshot()
        if unknown := _count_unknown(graph, found):
            trace.dropped.append(
                f"{unknown} hits whose ids the graph does not hold (yet): a write may be under way"
            )
        return graph

    def _seeds(
        self,
        graph: GraphSnapshot,
        entities: QueryEntities,
        near: tuple[Hits, ...],
        trace: GraphRAGTrace,
    ) -> Scored:
        weights: dict[int, float] = {}
        if not self.options.search_known_entities:
            for entity in entities:
                for row in graph.entity_rows(entity.entity_ids).tolist():
                    weights[row] = max(weights.get(row, 0.0), entity.weight)
        for hits in near:
            found = _known(graph.entity_rows, (hits,), self.options.entity_similarity_cutoff)
            for row, similarity in zip(found.rows.tolist(), found.scores.tolist()):
                weights[row] = max(weights.get(row, 0.0), min(similarity, 1.0))
        weights = {row: weight for row, weight in weights.items() if row >= 0 and weight > 0}
        rows = np.array(list(weights), dtype=np.int32)
        scores = np.array(list(weights.values()), dtype=np.float32)
        order = np.lexsort((graph.entity_ranks[rows], -scores))
        rows, scores = rows[order], scores[order]
        trace.entities = [
            TracedHit(id, graph.entity_names[row], weight)
            for id, row, weight in zip(graph.entity_ids(rows), rows.tolist(), scores.tolist())
        ]
        return Scored(rows, scores)


def search(
    store: GraphIndexStore,
    trace: GraphRAGTrace,
    *,
    entities: Vectors | None = None,
    relations: Vectors | None = None,
    passages: Vectors | None = None,
    limits: Limits,
    filters: MetadataFilters | None = None,
) -> Process[SearchResult]:
    """Search the store, counting one call a kind asked for."""
    trace.calls["store.search"] += sum(
        vectors is not None for vectors in (entities, relations, passages)
    )
    with trace.timed("search"):
        return (
            yield from call(
                store.search,
                store.asearch,
                entities=entities,
                relations=relations,
                passages=passages,
                limits=limits,
                filters=filters,
            )
        )


def unit_vector(values: Sequence[float]) -> Vectors:
    """Return `values` as float32 of length one; zeros stay zeros."""
    vector = np.asarray(values, dtype=np.float64)  # the squares of float32 may overflow
    norm = float(np.linalg.norm(vector))
    return (vector / norm if 0 < norm < np.inf else vector).astype(np.float32)


def known_hits(rows_of: Callable[[Sequence[str]], Rows], hits: Hits) -> Scored:
    """Return hits as rows, without those that the snapshot does not hold."""
    return _known(rows_of, (hits,))


def _count_unknown(graph: GraphSnapshot, found: SearchResult) -> int:
    return sum(
        int((rows_of(of_one.ids) < 0).sum())
        for rows_of, hits in (
            (graph.relation_rows, found.relations),
            (graph.passage_rows, found.passages),
        )
        for of_one in hits
    )


def _known(
    rows_of: Callable[[Sequence[str]], Rows],
    hits: tuple[Hits, ...],
    cutoff: float | None = None,
) -> Scored:
    if not hits:
        return Scored(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32))
    rows = rows_of(hits[0].ids)
    scores = np.asarray(hits[0].similarities, dtype=np.float32)
    keep = rows >= 0
    if cutoff is not None:
        keep &= scores > cutoff
    return Scored(rows[keep], scores[keep])


def _kept(scored: Scored, keep: Mask, limit: int | None = None) -> Scored:
    return Scored(scored.rows[keep][:limit], scored.scores[keep][:limit])


def _any_permitted(graph: GraphSnapshot, relations: Rows, mask: Mask) -> Mask:
    pointers, passages = graph.incidence.passages_of_relations(relations)
    counts = np.concatenate([[0], np.cumsum(mask[passages])])
    return np.asarray(counts[pointers[1:]] > counts[pointers[:-1]])


def _traced(hits: tuple[Hits, ...], kept: Sequence[str]) -> list[TracedHit]:
    wanted = set(kept[:TRACED])
    return [
        TracedHit(id, text, similarity)
        for of_one in hits
        for id, text, similarity in zip(of_one.ids, of_one.texts, of_one.similarities)
        if id in wanted
    ]


def _as_step(make: Callable[[], Process[T]]) -> Step[T]:
    return Step(run=lambda: drive(make()), arun=lambda: adrive(make()))
