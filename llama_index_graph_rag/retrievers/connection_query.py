"""One search for connections, as a process of steps: names, paths, facts, documents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from llama_index_graph_rag.extractors.query import EntityExtractor, QueryEntity
from llama_index_graph_rag.graph.connections import (
    Connections,
    ConnectLimits,
    NeighborsFound,
    NeighborsWanted,
)
from llama_index_graph_rag.graph.path_graph import PathGraph
from llama_index_graph_rag.graph.prune import choose_paths, choose_relations
from llama_index_graph_rag.graph.snapshot import GraphSnapshot
from llama_index_graph_rag.retrievers.connection_documents import (
    FactBook,
    GraphDocument,
    relation_uses,
)
from llama_index_graph_rag.retrievers.connection_trace import (
    ConnectionTrace,
    Side,
    TracedConnection,
)
from llama_index_graph_rag.retrievers.walk import GraphWalk, ReaderWalk, SnapshotWalk, search
from llama_index_graph_rag.steps import Process, Step, perform
from llama_index_graph_rag.stores.base import EntityRef, Fact, GraphReader, StoredPassage
from llama_index_graph_rag.trace import GraphNodeWithScore

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
    max_matches: int
    limits: ConnectLimits


@dataclass(frozen=True, slots=True)
class ConnectionQuery:
    """Searches connections in a reader; each method is one step of the way."""

    reader: GraphReader
    entity_extractor: EntityExtractor
    embed_model: BaseEmbedding | None
    options: ConnectionOptions

    def run(
        self, bundle: QueryBundle, names: Sequence[str] | None, trace: ConnectionTrace
    ) -> Process[list[NodeWithScore]]:
        """Return the documents (or passages) for a question, or for names that are given."""
        graph = self._snapshot()
        found = (
            (yield from self._extract(graph, trace))
            if names is None
            else [QueryEntity(name.strip()) for name in names if name.strip()]
        )
        trace.sides = yield from self._sides(found, trace)
        if not trace.sides:
            trace.fallbacks.append(
                "no entity: "
                + ("none of the names is in the graph" if found else "the question names none")
            )
            return []
        walk = ReaderWalk(self.reader, trace.calls) if graph is None else SnapshotWalk(graph)
        with trace.timed("search"):
            sides = [side.entities for side in trace.sides]
            connections = yield from search(walk, sides, self.options.limits)
        trace.searched(connections, self.options.limits)
        vector = yield from self._vector(bundle, trace)
        paths = yield from self._paths(walk, connections, vector, trace)
        around = yield from self._around(walk, bool(paths), bool(vector), trace)
        book = yield from self._facts(paths, around, vector, trace)
        with trace.timed("write"):
            path_documents = self._path_documents(paths, book, trace)
            entity_documents = self._entity_documents(around, book)
        if self.options.mode == "passages":
            return (yield from self._passages([*path_documents, *entity_documents], trace))
        return [
            GraphNodeWithScore(node=document.node, score=1.0, relations=document.relations)
            for document in (*path_documents, *entity_documents)
        ]

    # --- names ----------------------------------------------------------------------------------

    def _snapshot(self) -> GraphSnapshot | None:
        snapshot = getattr(self.reader, "snapshot", None)
        return snapshot() if callable(snapshot) else None

    def _extract(
        self, graph: GraphSnapshot | None, trace: ConnectionTrace
    ) -> Process[list[QueryEntity]]:
        known = GraphSnapshot.empty() if graph is None else graph
        extractor = self.entity_extractor
        with trace.timed("entities"):
            found = yield from perform(
                Step(
                    run=lambda: extractor.extract(trace.question, known),
                    arun=lambda: extractor.aextract(trace.question, known),
                )
            )
        if found.llm_calls:
            trace.calls["llm"] += found.llm_calls
            trace.tokens["prompt"] += found.prompt_tokens
            trace.tokens["completion"] += found.completion_tokens
        if found.reason:
            trace.fallbacks.append(f"query entities: {found.reason}")
        return list(found)

    def _sides(self, found: Sequence[QueryEntity], trace: ConnectionTrace) -> Process[list[Side]]:
        wanted: dict[str, tuple[str, ...]] = {}
        for entity in found:
            ids = entity.entity_ids[: self.options.max_matches] or (entity.name,)
            wanted.setdefault(entity.name, ids)
        keys = list(dict.fromkeys(key for keys in wanted.values() for key in keys))
        if not keys:
            return []
        limit = self.options.max_matches
        trace.calls["reader.match"] += 1
        with trace.timed("entities"):
            matches = yield from perform(
                Step(
                    run=lambda: self.reader.match_entities(keys, limit=limit),
                    arun=lambda: self.reader.amatch_entities(keys, limit=limit),
                )
            )
        by_key = dict(zip(keys, matches))
        sides = []
        for name, own in wanted.items():
            refs = {ref.id: ref for key in own for ref in by_key[key]}
            if refs:
                sides.append(Side(name, tuple(refs.values())[:limit]))
            else:
                trace.dropped.append(f"{name!r}: no entity of the graph has this name or id")
        return _apart(sides, trace)

    # --- paths ----------------------------------------------------------------------------------

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
            return (yield from perform(step))

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
            if options.max_relations is None:
                chosen = choose_paths(graphs, options.max_paths)
            else:
                chosen = choose_relations(graphs, options.max_relations)
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
                names = " - ".join(ref.name for ref in path)
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
            found = yield from perform(
                Step(run=lambda: get(ids), arun=lambda: asyncio.to_thread(get, ids))
            )
        nodes = [item.node if isinstance(item, StoredPassage) else item for item in found]
        if len(nodes) < len(ids):
            trace.dropped.append(f"{len(ids) - len(nodes)} passage(s) are gone from the store")
        return nodes


def _apart(sides: Sequence[Side], trace: ConnectionTrace) -> list[Side]:
    """Give each entity to one side: to the name that can mean the fewest."""
    taken: dict[str, str] = {}
    kept: dict[int, Side] = {}
    for place in sorted(range(len(sides)), key=lambda place: len(sides[place].entities)):
        name, entities = sides[place]
        own = tuple(ref for ref in entities if ref.id not in taken)
        if own:
            kept[place] = Side(name, own)
            taken.update((ref.id, name) for ref in own)
        else:
            trace.dropped.append(f"{name!r}: the same entity as {taken[entities[0].id]!r}")
    return [kept[place] for place in sorted(kept)]


def _as_ids(walk: GraphWalk, edges: Sequence[tuple[int, int]]) -> list[Pair]:
    ids = [ref.id for ref in walk.refs([row for edge in edges for row in edge])]
    return list(zip(ids[::2], ids[1::2]))
