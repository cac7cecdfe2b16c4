"""Walking a graph that is held in memory as a snapshot."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph.adjacency import Mask, Pointers, Rows, distinct, member
from llama_index_graph_rag.identity import entity_id
from llama_index_graph_rag.stores.base import (
    EntityRef,
    Evidence,
    Fact,
    GraphReader,
    Link,
    Neighbor,
    StoredPassage,
    Vectors,
)

if TYPE_CHECKING:
    from llama_index_graph_rag.graph.snapshot import GraphSnapshot
    from llama_index_graph_rag.triplets import Mention

logger = logging.getLogger("llama_index_graph_rag")

MAX_TIED = 50
"""Facts of a pair that tie for the last place and are read to be settled by predicate."""
EVIDENCE_PER_FACT = 3
"""Passages given as evidence of a fact; its `count` says how many there are."""

_SCHEMA_PASSAGES = 20
_SCHEMA_PREDICATES = 30


class SnapshotReader(GraphReader):
    """A GraphReader over a snapshot: all walking is done in memory.

    A subclass supplies the three methods below; only `facts` (and the facts of `paths`) and
    `schema` read passages, only `facts` with a question reads vectors, each in one call.
    """

    @abstractmethod
    def snapshot(self) -> GraphSnapshot:
        """Return the graph as it is now, immutable: matrices, ids and names."""

    @abstractmethod
    def get_passages(self, ids: Sequence[str]) -> list[StoredPassage]:
        """Return the passages with these ids, in the order asked, without the missing ones."""

    @abstractmethod
    def get_vectors(
        self, *, entities: Sequence[str] = (), relations: Sequence[str] = ()
    ) -> tuple[Mapping[str, Vectors], Mapping[str, Vectors]]:
        """Return the embeddings of these entities and relations by id, without the missing ones."""

    def match_entities(
        self, names: Sequence[str], *, by: str | None = None, limit: int = 5
    ) -> list[list[EntityRef]]:
        """Return, per name, the entity with this id and the one with this canonical name.

        Parameters
        ----------
        names
            Names in any spelling, or ids.
        by
            ``"id"`` or ``"name"`` for only one of the two.
        limit
            Most entities a name.

        Raises
        ------
        GraphRAGValueError
            If `by` is anything else, or `limit` less than 1.
        """
        if by not in (None, "id", "name"):
            raise GraphRAGValueError(
                f"by={by!r}: entities of this store have only an id and a name; "
                "use 'id', 'name' or None for both"
            )
        _check_limit("limit", limit)
        graph = self.snapshot()
        by_id, by_name = np.full((2, len(names)), -1, dtype=np.int32)
        if by != "name":
            by_id = graph.entity_rows(names)
        if by != "id":
            by_name = graph.entity_rows([entity_id(name) for name in names])
        found = []
        by_id[~_held(graph, by_id)] = -1
        by_name[~_held(graph, by_name)] = -1
        for rows in zip(by_id.tolist(), by_name.tolist()):
            known = [row for row in dict.fromkeys(rows) if row >= 0]
            found.append(_refs(graph, np.array(known[:limit], dtype=np.int32)))
        return found

    def neighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Return each entity's neighbours in both directions, best linked first, then by name."""
        _check_limit("limit_per_entity", limit_per_entity)
        graph = self.snapshot()
        ids = list(dict.fromkeys(entity_ids))
        rows = graph.entity_rows(ids)
        held = _held(graph, rows)
        found: dict[str, list[Neighbor]] = {id: [] for id, is_held in zip(ids, held) if is_held}
        owners, others, counts = _tally(graph, rows[held])
        # Names are read only of those that may come in.
        may = _at_least_as_linked(owners, counts, limit_per_entity)
        owners, others, counts = owners[may], others[may], counts[may]
        names = graph.entity_names.take(others)
        ranks = graph.entities.ranks_of(others)
        order = sorted(
            zip(owners.tolist(), (-counts).tolist(), names, ranks.tolist(), range(len(names)))
        )
        best = np.array([place for *_, place in order], dtype=np.intp)
        best = best[_places_within(owners[best]) < limit_per_entity]
        around = list(found.values())
        for owner, ref, count in zip(
            owners[best].tolist(), _refs(graph, others[best]), counts[best].tolist()
        ):
            around[owner].append(Neighbor(ref, count))
        return found

    def links(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Return the pairs (one of each side, not equal) joined directly, in either direction."""
        _check_limit("limit", limit)
        graph = self.snapshot()
        left = _known(graph.entity_rows(left_ids))
        right = _known(graph.entity_rows(right_ids))
        lengths = graph.incidence.entity_relations.lengths
        swapped = int(lengths(right).sum()) < int(lengths(left).sum())
        near, far = (right, left) if swapped else (left, right)
        places, others, counts = _tally(graph, near)
        keep = member(others, far)
        owners, others, counts = near[places[keep]], others[keep], counts[keep]
        lefts, rights = (others, owners) if swapped else (owners, others)
        rank = graph.entities.ranks_of
        order = np.lexsort((rank(rights), rank(lefts), -counts))[:limit]
        return [
            Link(left_id, right_id, count)
            for left_id, right_id, count in zip(
                graph.entity_ids(lefts[order]),
                graph.entity_ids(rights[order]),
                counts[order].tolist(),
            )
        ]

    def facts(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        per_pair: int = 5,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Fact]:
        """Return the triplets that join each pair, in either direction, pairs in the order given.

        Within a pair nearest to the question first, or by the number of passages, then predicate.
        At most `EVIDENCE_PER_FACT` of the passages are given as evidence.
        """
        _check_limit("per_pair", per_pair)
        graph = self.snapshot()
        groups = _relations_of_pairs(graph, pairs)
        similarity = self._similarities(graph, groups, query_embedding)
        groups = [_foremost(graph, rows, similarity, per_pair) for rows in groups]
        stated = self._statements(graph, groups)
        facts: list[Fact] = []
        for rows in groups:
            found = []
            for row, id in zip(rows.tolist(), graph.relation_ids(rows)):
                if row in stated:
                    near = similarity.get(row)
                    fact = replace(stated[row], similarity=near)
                    key = (near is None, -(near or 0.0), -fact.count, fact.predicate, id)
                    found.append((key, fact))
            facts.extend(fact for _, fact in sorted(found, key=itemgetter(0))[:per_pair])
        return facts

    def _similarities(
        self, graph: GraphSnapshot, groups: Sequence[Rows], query: Sequence[float] | None
    ) -> dict[int, float]:
        if query is None or not groups:
            return {}
        rows = distinct(*groups)
        ids = graph.relation_ids(rows)
        vectors = self.get_vectors(relations=ids)[1]
        have = [(row, vectors[id]) for row, id in zip(rows.tolist(), ids) if id in vectors]
        if not have:
            return {}
        matrix = np.asarray([vector for _, vector in have], dtype=np.float32)
        question = np.asarray(query, dtype=np.float32)
        if matrix.shape[1:] != question.shape:
            raise GraphRAGValueError(
                f"query_embedding has shape {question.shape}, the index {matrix.shape[1:]}: "
                "embed the question with the model of the index"
            )
        norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(question)
        cosines = matrix @ question / np.maximum(norms, np.finfo(np.float32).tiny)
        return {row: cosine for (row, _), cosine in zip(have, cosines.tolist())}

    def _statements(self, graph: GraphSnapshot, groups: Sequence[Rows]) -> dict[int, Fact]:
        """Read predicate and evidence of relations from the passages that state them."""
        rows = distinct(*groups) if groups else np.array([], dtype=np.int32)
        indptr, holders = graph.incidence.passages_of_relations(rows)
        chosen = []
        for start, end in zip(indptr.tolist(), indptr[1:].tolist()):
            held = holders[start:end]
            ranks = graph.passages.keys.ranks_of(held)
            chosen.append(graph.passage_ids(held[np.argsort(ranks)[:EVIDENCE_PER_FACT]]))
        wanted = list(dict.fromkeys(id for ids in chosen for id in ids))
        passages = {p.node.node_id: p for p in self.get_passages(wanted)} if wanted else {}
        mentions = {
            (id, relation): (mention, passage.node.text)
            for id, passage in passages.items()
            for relation, mention in zip(passage.relation_ids, passage.mentions)
        }
        subjects = _refs(graph, graph.subjects[rows])
        objects = _refs(graph, graph.objects[rows])
        facts: dict[int, Fact] = {}
        for place, (row, id) in enumerate(zip(rows.tolist(), graph.relation_ids(rows))):
            said = [(p, *mentions[p, id]) for p in chosen[place] if (p, id) in mentions]
            if said:
                facts[row] = Fact(
                    subjects[place],
                    said[0][1].triplet.predicate,
                    objects[place],
                    count=int(indptr[place + 1] - indptr[place]),
                    evidence=tuple(Evidence(p, _sentence(mention, t)) for p, mention, t in said),
                )
        if len(facts) < len(rows):
            logger.warning(
                "%d facts left out: their passages are gone or do not mention them",
                len(rows) - len(facts),
            )
        return facts

    def schema(self) -> str:
        """Return what there is: the counts, and predicates of a few passages as examples."""
        graph = self.snapshot()
        stats = graph.stats()
        rows = np.flatnonzero(graph.incidence.passage_degree).astype(np.int32)
        rows = rows[np.argsort(graph.passages.keys.ranks_of(rows))[:_SCHEMA_PASSAGES]]
        passages = self.get_passages(graph.passage_ids(rows)) if len(rows) else []
        predicates = Counter(m.triplet.predicate for p in passages for m in p.mentions)
        common = sorted(predicates, key=lambda name: (-predicates[name], name))
        examples = ", ".join(repr(name) for name in common[:_SCHEMA_PREDICATES]) or "none"
        return (
            f"{stats['entities']} entities, each with an id and a name, without labels; "
            f"{stats['relations']} relations from a subject to an object, each with a predicate "
            f"in free words, stated in {stats['passages']} passages. "
            f"Predicates, for example: {examples}."
        )


def _sentence(mention: Mention, text: str) -> str:
    return "" if mention.start is None or mention.end is None else mention.evidence(text)


def _check_limit(name: str, value: int) -> None:
    if value < 1:
        raise GraphRAGValueError(f"{name} is {value}, the least is 1; raise it")


def _held(graph: GraphSnapshot, rows: Rows) -> Mask:
    """Return which rows are of entities with a relation that a passage holds."""
    held = rows >= 0
    held[held] = graph.incidence.entity_relations.lengths(rows[held]) > 0
    return held


def _known(rows: Rows) -> Rows:
    return distinct(rows[rows >= 0])


def _refs(graph: GraphSnapshot, rows: Rows) -> list[EntityRef]:
    return [
        EntityRef(id, name)
        for id, name in zip(graph.entity_ids(rows), graph.entity_names.take(rows))
    ]


def _around(graph: GraphSnapshot, rows: Rows) -> tuple[Rows, Rows, Rows]:
    """Return, for each relation of each row: the row's place, the other end, the relation."""
    indptr, relations = graph.incidence.relations_of_entities(rows)
    places = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(indptr))
    others = graph.subjects[relations] + graph.objects[relations] - rows[places]
    return places, others, relations


def _tally(graph: GraphSnapshot, rows: Rows) -> tuple[Rows, Rows, Pointers]:
    """Return, for each neighbour of each row: the row's place, the neighbour, the relations."""
    places, others, _ = _around(graph, rows)
    keep = others != rows[places]
    pairs, counts = np.unique(
        (places[keep].astype(np.int64) << 32) | others[keep], return_counts=True
    )
    return (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32), counts


def _places_within(owners: Rows) -> Pointers:
    """Return 0, 1, ... anew for each run of equal, ascending owners."""
    return np.arange(len(owners)) - np.searchsorted(owners, owners)


def _at_least_as_linked(owners: Rows, counts: Pointers, limit: int) -> Mask:
    """Return which have a count not below the `limit`-th highest of their owner."""
    order = np.lexsort((-counts, owners))
    last = order[_places_within(owners[order]) == limit - 1]
    least = np.zeros(int(owners[-1]) + 1 if len(owners) else 0, dtype=np.int64)
    least[owners[last]] = counts[last]
    mask: Mask = counts >= least[owners]
    return mask


def _relations_of_pairs(graph: GraphSnapshot, pairs: Sequence[tuple[str, str]]) -> list[Rows]:
    if not pairs:
        return []
    left = graph.entity_rows([pair[0] for pair in pairs])
    right = graph.entity_rows([pair[1] for pair in pairs])
    known = np.flatnonzero((left >= 0) & (right >= 0))
    left, right = left[known], right[known]
    lengths = graph.incidence.entity_relations.lengths
    swap = lengths(right) < lengths(left)
    near, far = np.where(swap, right, left), np.where(swap, left, right)
    places, others, relations = _around(graph, near)
    keep = others == far[places]
    owners = known[places[keep]]
    bounds = np.searchsorted(owners, np.arange(1, len(pairs)))
    return np.split(relations[keep], bounds)


def _foremost(
    graph: GraphSnapshot, rows: Rows, similarity: Mapping[int, float], limit: int
) -> Rows:
    """Return the rows that may be among the first `limit`: ties are settled by predicate later.

    Of hundreds that tie, those first by id stay: each would cost the read of a passage.
    """
    if len(rows) <= limit:
        return rows
    counts = graph.incidence.relation_passages.lengths(rows)
    nearness = np.array([similarity.get(row, -np.inf) for row in rows.tolist()])
    order = np.lexsort((graph.relation_ranks[rows], -counts, -nearness))
    last = order[limit - 1]
    tied = (nearness == nearness[last]) & (counts >= counts[last])
    may_be = (nearness > nearness[last]) | tied
    kept: Rows = rows[order[may_be[order]][: limit + MAX_TIED]]
    return kept
