"""One search for connections, as a process of steps: names, paths, facts, documents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from llama_index_graph_rag.graph.connections import (
    Connections,
    ConnectLimits,
    NeighborsFound,
    NeighborsWanted,
)
from llama_index_graph_rag.graph.path_graph import PathGraph
from llama_index_graph_rag.graph.prune import ChosenPath, choose_paths, choose_relations
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.retrievers.connection_documents import (
    FactBook,
    GraphDocument,
    relation_uses,
)
from llama_index_graph_rag.retrievers.connection_names import NameFinder, shown_name
from llama_index_graph_rag.retrievers.connection_trace import ConnectionTrace, TracedConnection
from llama_index_graph_rag.retrievers.walk import GraphWalk, ReaderWalk, SnapshotWalk, search
from llama_index_graph_rag.steps import Process, Step, drive, perform
from llama_index_graph_rag.stores.base import EntityRef, Fact, GraphReader, StoredPassage
from llama_index_graph_rag.trace import GraphNodeWithScore

T = TypeVar("T")
Mode = Literal["both", "paths", "entities", "passages"]
Pair = tuple[str, str]

MAX_WEIGHED_PAIRS = 1_000
"""Pairs whose nearness to the question is asked for before pruning; more go by link count."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The numbers of a search for connections; see ConnectionRetriever for what each means."""

    mode: Mode
    max_paths: int
    max_relations: int | None
    similarity_top_k: int
    facts_per_pair: int
    evidence_per_fact: int
    limits: ConnectLimits


@dataclass(frozen=True, slots=True)
class ConnectionQuery:
    """Searches connections in a reader; each method is one step of the way."""

    reader: GraphReader
    names: NameFinder
    embed_model: BaseEmbedding | None
    options: ConnectionOptions

    def run(
        self, bundle: QueryBundle, names: Sequence[str] | None, trace: ConnectionTrace
    ) -> Process[list[NodeWithScore]]:
        """Return the documents (or passages) for a question, or for names that are given."""
        graph = yield from self._snapshot()
        trace.sides = yield from self.names.sides(names, graph, trace)
        if not trace.sides:
            return []
        with trace.timed("search"):
            walk, connections = yield from self._search(graph, trace)
        trace.searched(connections, self.options.limits)
        vector = yield from self._vector(bundle, trace)
        paths = yield from self._paths(walk, connections, vector, trace)
        around = yield from self._around(walk, bool(paths), bool(vector), trace)
        book = yield from self._facts(paths, around, vector, trace)
        with trace.timed("write"):
            path_documents = self._path_documents(paths, book, trace)
            entity_documents = self._entity_documents(around, book)
            of_paths = [one for path in path_documents for one in path.traced("chosen")]
            of_entities = [one for entity in entity_documents for one in entity.traced("used")]
            trace.keep_subgraph([*of_paths, *of_entities])
        if self.options.mode == "passages":
            return (yield from self._passages([*path_documents, *entity_documents], trace))
        return [
            GraphNodeWithScore(node=document.node, score=1.0, relations=document.relations)
            for document in (*path_documents, *entity_documents)
        ]

    def _snapshot(self) -> Process[GraphSnapshot | None]:
        snapshot = getattr(self.reader, "snapshot", None)
        if not callable(snapshot):
            return None
        # In a thread, since the first one may be read from the store.
        graph: GraphSnapshot = yield from perform(_in_thread(snapshot))
        return graph

    # --- paths ----------------------------------------------------------------------------------

    def _search(
        self, graph: GraphSnapshot | None, trace: ConnectionTrace
    ) -> Process[tuple[GraphWalk, Connections]]:
        sides, limits = [side.entities for side in trace.sides], self.options.limits
        if graph is None:
            walk = ReaderWalk(self.reader, trace.calls)
            return walk, (yield from search(walk, sides, limits))

        def in_memory() -> tuple[GraphWalk, Connections]:
            walk = SnapshotWalk(graph)
            return walk, drive(search(walk, sides, limits))

        return (yield from perform(_in_thread(in_memory)))

    def _vector(self, bundle: QueryBundle, trace: ConnectionTrace) -> Process[list[float] | None]:
        model = self.embed_model
        if model is None or not trace.question:
            return None
        given = bundle.embedding
        if given is not None and len(given) == getattr(self.reader, "dimension", None):
            return list(given)
        texts = [text.strip() for text in bundle.embedding_strs]
        trace.calls["embedding"] += 1
        with trace.timed("embedding"):
            if len(texts) == 1:
                step = Step(
                    run=lambda: model.get_query_embedding(texts[0]),
                    arun=lambda: model.aget_query_embedding(texts[0]),
                )
            else:
                step = Step(
                    run=lambda: model.get_agg_embedding_from_queries(texts),
                    arun=lambda: model.aget_agg_embedding_from_queries(texts),
                )
            try:
                return (yield from perform(step))
            # An embedding model is a service like the LLM: without it the order by links stands.
            except Exception as error:
                trace.fallbacks.append(
                    f"ordered by links and names alone, the embedding failed: {error!r:.200}"
                )
                return None

    def _paths(
        self,
        walk: GraphWalk,
        connections: Connections,
        vector: list[float] | None,
        trace: ConnectionTrace,
    ) -> Process[list[tuple[EntityRef, ...]]]:
        with trace.timed("prune"):
            graphs = [PathGraph.of(found, walk.order) for found in connections.found]
        options = self.options
        n_paths = sum(graph.n_paths for graph in graphs)
        if options.max_relations is None:
            over = n_paths > options.max_paths
        else:
            over = sum(graph.n_edges for graph in graphs) > options.max_relations
        if over and vector is not None:
            graphs = yield from self._weighed(walk, graphs, vector, trace)
        with trace.timed("prune"):
            chosen = yield from perform(_in_thread(lambda: self._chosen(graphs)))
        names = [side.name for side in trace.sides]
        trace.connections = [
            TracedConnection(
                names[graph.left],
                names[graph.right],
                graph.length,
                graph.n_paths,
                sum((path.left, path.right) == (graph.left, graph.right) for path in chosen),
            )
            for graph in graphs
        ]
        if len(chosen) < n_paths:
            trace.dropped.append(f"{n_paths:,.0f} shortest paths pruned to {len(chosen)}")
        return [tuple(walk.refs(path.rows)) for path in chosen]

    def _chosen(self, graphs: Sequence[PathGraph]) -> list[ChosenPath]:
        if self.options.max_relations is None:
            return choose_paths(graphs, self.options.max_paths)
        return choose_relations(graphs, self.options.max_relations)

    def _weighed(
        self,
        walk: GraphWalk,
        graphs: Sequence[PathGraph],
        vector: list[float],
        trace: ConnectionTrace,
    ) -> Process[list[PathGraph]]:
        """Weigh edges by how near the nearest of their facts is to the question."""
        edges = [_as_ids(walk, graph.edges) for graph in graphs]
        pairs = list(dict.fromkeys(pair for part in edges for pair in part))
        if len(pairs) > MAX_WEIGHED_PAIRS:
            trace.dropped.append(
                f"nearness to the question in pruning: {len(pairs):,} pairs are over the "
                f"{MAX_WEIGHED_PAIRS:,} that are asked for; the link count stands in"
            )
            return list(graphs)
        facts = yield from self._ask_facts(pairs, 1, vector, trace)
        near: dict[frozenset[str], float] = {}
        for fact in facts:
            if fact.similarity is not None:
                pair = frozenset((fact.subject.id, fact.object.id))
                near[pair] = max(near.get(pair, -1.0), fact.similarity)
        if not near:
            return list(graphs)
        return [
            graph.with_weights([near.get(frozenset(pair), -1.0) for pair in part])
            for graph, part in zip(graphs, edges)
        ]

    def _around(
        self, walk: GraphWalk, any_path: bool, any_vector: bool, trace: ConnectionTrace
    ) -> Process[list[tuple[EntityRef, list[EntityRef]]]]:
        """Return the entities to write about, with their neighbours, best linked first."""
        alone = len(trace.sides) == 1
        if not alone and (
            self.options.mode == "paths" or (self.options.mode == "passages" and any_path)
        ):
            return []
        refs = [ref for side in trace.sides for ref in side.entities]
        rows = np.array(walk.rows(refs), dtype=np.int32)
        limits = self.options.limits
        with trace.timed("search"):
            (found,) = yield from walk.answer(NeighborsWanted((rows,), limits.neighbors))
        assert isinstance(found, NeighborsFound)
        # Without a question to be near to, no more than can be written is asked for.
        most = limits.neighbors if any_vector else self.options.similarity_top_k
        around = []
        for row, ref in zip(rows.tolist(), refs):
            neighbors = found.edges.targets[found.edges.sources == row][:most]
            around.append((ref, walk.refs(neighbors.tolist())))
        return around

    # --- facts and documents --------------------------------------------------------------------

    def _facts(
        self,
        paths: Sequence[Sequence[EntityRef]],
        around: Sequence[tuple[EntityRef, Sequence[EntityRef]]],
        vector: list[float] | None,
        trace: ConnectionTrace,
    ) -> Process[FactBook]:
        steps = [(a.id, b.id) for path in paths for a, b in pairwise(path)]
        steps += [(ref.id, neighbor.id) for ref, neighbors in around for neighbor in neighbors]
        distinct: dict[frozenset[str], Pair] = {}
        for pair in steps:
            distinct.setdefault(frozenset(pair), pair)
        pairs = list(distinct.values())
        facts: list[Fact] = []
        if pairs:
            facts = yield from self._ask_facts(pairs, self.options.facts_per_pair, vector, trace)
        book = FactBook(facts, {}, evidence_per_fact=self.options.evidence_per_fact)
        bare = [
            evidence.passage_id
            for fact in facts
            for evidence in book.evidence(fact)
            if evidence.passage_id and not evidence.sentence
        ]
        if self.options.mode == "passages" or not bare or not hasattr(self.reader, "get_passages"):
            return book
        # No sentence is known: the whole passage stands in.
        nodes = yield from self._get_passages(list(dict.fromkeys(bare)), trace)
        texts = {node.node_id: node.get_content() for node in nodes}
        return FactBook(facts, texts, evidence_per_fact=self.options.evidence_per_fact)

    def _ask_facts(
        self,
        pairs: Sequence[Pair],
        per_pair: int,
        vector: list[float] | None,
        trace: ConnectionTrace,
    ) -> Process[list[Fact]]:
        trace.calls["reader.facts"] += 1
        with trace.timed("facts"):
            return (
                yield from perform(
                    Step(
                        run=lambda: self.reader.facts(
                            pairs, per_pair=per_pair, query_embedding=vector
                        ),
                        arun=lambda: self.reader.afacts(
                            pairs, per_pair=per_pair, query_embedding=vector
                        ),
                    )
                )
            )

    def _path_documents(
        self, paths: Sequence[Sequence[EntityRef]], book: FactBook, trace: ConnectionTrace
    ) -> list[GraphDocument]:
        documents = []
        for path in paths:
            document = book.path(path)
            if document is None:
                names = " - ".join(shown_name(ref.name) for ref in path)
                trace.dropped.append(f"path {names}: the graph changed, its facts are gone")
            else:
                documents.append(document)
                trace.paths.append(document.text.split("\n", 1)[0])
        return [] if self.options.mode == "entities" else documents

    def _entity_documents(
        self, around: Sequence[tuple[EntityRef, Sequence[EntityRef]]], book: FactBook
    ) -> list[GraphDocument]:
        documents = []
        for entity, neighbors in around:
            facts = [fact for other in neighbors for fact in book.between(entity.id, other.id)]
            facts.sort(key=lambda fact: -(fact.similarity or 0.0))
            if facts:
                documents.append(book.entity(entity, facts[: self.options.similarity_top_k]))
        return documents

    def _passages(
        self, documents: Sequence[GraphDocument], trace: ConnectionTrace
    ) -> Process[list[NodeWithScore]]:
        facts: dict[str, list[Fact]] = {}
        for document in documents:
            for fact in document.facts:
                for evidence in fact.evidence[: self.options.evidence_per_fact]:
                    stated = facts.setdefault(evidence.passage_id, [])
                    if fact not in stated:
                        stated.append(fact)
        ids = [id_ for id_ in facts if id_]
        nodes = (yield from self._get_passages(ids, trace)) if ids else []
        return [
            GraphNodeWithScore(node=node, score=1.0, relations=relation_uses(facts[node.node_id]))
            for node in nodes
        ]

    def _get_passages(self, ids: Sequence[str], trace: ConnectionTrace) -> Process[list[BaseNode]]:
        # Of the store's own passages; not part of the GraphReader contract, see the constructor.
        get: Callable[[Sequence[str]], list[StoredPassage | BaseNode]]
        get = self.reader.get_passages  # type: ignore[attr-defined]
        trace.calls["reader.passages"] += 1
        with trace.timed("passages"):
            found = yield from perform(_in_thread(lambda: get(ids)))
        nodes = [item.node if isinstance(item, StoredPassage) else item for item in found]
        if len(nodes) < len(ids):
            trace.dropped.append(f"{len(ids) - len(nodes)} passage(s) are gone from the store")
        return nodes


def _in_thread(call: Callable[[], T]) -> Step[T]:
    return Step(run=call, arun=lambda: asyncio.to_thread(call))


def _as_ids(walk: GraphWalk, edges: Sequence[tuple[int, int]]) -> list[Pair]:
    ids = [ref.id for ref in walk.refs([row for edge in edges for row in edge])]
    return list(zip(ids[::2], ids[1::2]))
