"""The relations around a question, for its trace: what is known of them without a further call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from llama_index_graph_rag.trace import MAX_TRACED_RELATIONS, Role, TracedRelation

if TYPE_CHECKING:
    from llama_index_graph_rag.query_state import QueryState


def subgraph_of(state: QueryState) -> tuple[list[TracedRelation], int]:
    """Return the relations around a question, the most telling first, and how many more there are.

    Names are those of the snapshot. Predicates come from passages and hits that were fetched for
    other reasons; where none of them states a relation its predicate stays empty.
    """
    graph, recall = state.graph, state.recall
    roles = _roles(state)
    rows = np.array(list(roles)[:MAX_TRACED_RELATIONS], dtype=np.int32)
    subjects, objects = graph.subjects[rows], graph.objects[rows]
    predicates = _predicates(state)
    texts = {hit.id: hit.text for hit in state.trace.relations}
    similar = dict(zip(recall.relations.rows.tolist(), recall.relations.scores.tolist()))
    degrees: dict[int, int] = {}
    if state.expansion is not None:
        reached = state.expansion.relations.tolist()
        degrees = dict(zip(reached, state.expansion.degrees.tolist()))
    relations = []
    for row, id, subject_id, subject, object_id, object in zip(
        rows.tolist(),
        graph.relation_ids(rows),
        graph.entity_ids(subjects),
        graph.entity_names.take(subjects),
        graph.entity_ids(objects),
        graph.entity_names.take(objects),
    ):
        predicate = predicates.get(id) or predicate_between(texts.get(id, ""), subject, object)
        relations.append(
            TracedRelation(
                id,
                subject_id,
                subject,
                predicate,
                object_id,
                object,
                roles[row],
                degrees.get(row),
                similar.get(row),
            )
        )
    return relations, len(roles) - len(relations)


def _roles(state: QueryState) -> dict[int, Role]:
    graph, trace = state.graph, state.trace
    used = [use.id for result in trace.results for use in result.relations]
    reached = [] if state.expansion is None else state.expansion.relations.tolist()
    sources: tuple[tuple[Role, list[int]], ...] = (
        ("chosen", graph.relation_rows([hit.id for hit in trace.chosen]).tolist()),
        ("used", graph.relation_rows(used).tolist()),
        ("recalled", state.recall.relations.rows.tolist()),
        ("expanded", [*(candidate.row for candidate in state.candidates), *reached]),
    )
    roles: dict[int, Role] = {}
    for role, rows in sources:
        for row in rows:
            roles.setdefault(row, role)
    return roles


def _predicates(state: QueryState) -> dict[str, str]:
    predicates: dict[str, str] = {}
    for passage in state.pool.values():
        for id, mention in zip(passage.relation_ids, passage.mentions):
            predicates.setdefault(id, mention.triplet.predicate)
    return predicates


def predicate_between(text: str, subject: str, object: str) -> str:
    """Return what stands between the two names in a relation's text, "" if they are not its ends.

    Examples
    --------
    >>> predicate_between("Euler was a student of Bernoulli", "euler", "Bernoulli")
    'was a student of'
    """
    # Casefolding may lengthen a text (ß): then the lengths of the names say nothing.
    as_written = len(text.casefold()) == len(text)
    ends = text.casefold().startswith(subject.casefold() + " ") and text.casefold().endswith(
        " " + object.casefold()
    )
    return text[len(subject) : len(text) - len(object)].strip() if as_written and ends else ""
