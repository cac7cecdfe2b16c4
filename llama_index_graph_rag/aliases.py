"""Entities renamed as passages are written, and their other names kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llama_index_graph_rag.extractors.resolver import EntityResolver, resolve_triplets
from llama_index_graph_rag.identity import canonical_name, content_hash
from llama_index_graph_rag.triplets import Mention, Triplet
from llama_index_graph_rag.writing import Passage

ALIAS_PREDICATE = "is another name of"
"""Predicate of the relation by which a passage records that an entity goes by another name."""


def resolve_passages(
    passages: Sequence[Passage], resolver: EntityResolver
) -> tuple[list[Passage], dict[str, str]]:
    """Return `passages` with entities renamed by `resolver`, and the aliases used.

    The resolver sees the names of all passages at once. Each passage records the aliases that it
    uses as relations (alias, "is another name of", name): so a question that uses an alias still
    finds the entity, a `repair` keeps it, and it goes when its last passage does.

    Raises
    ------
    GraphRAGValueError
        If a replacement has an empty canonical name.
    """
    stated = [
        mention.triplet
        for passage in passages
        for mention in passage.mentions
        if mention.triplet.predicate != ALIAS_PREDICATE
    ]
    renamed, aliases = resolve_triplets(stated, resolver)
    if not aliases:
        return list(passages), {}
    targets = iter(renamed)
    return [_resolved(passage, targets, aliases) for passage in passages], aliases


def _resolved(passage: Passage, targets: Iterator[Triplet], aliases: Mapping[str, str]) -> Passage:
    mentions: dict[str, Mention] = {}
    used: dict[str, Mention] = {}
    for mention in passage.mentions:
        recorded = mention.triplet.predicate == ALIAS_PREDICATE
        triplet = mention.triplet if recorded else next(targets)
        mentions.setdefault(triplet.id, replace(mention, triplet=triplet))
        for name in () if recorded else (mention.triplet.subject, mention.triplet.object):
            other = aliases.get(name, name)
            if canonical_name(other) != canonical_name(name):
                alias = Triplet(name, ALIAS_PREDICATE, other)
                used.setdefault(alias.id, replace(mention, triplet=alias))
    mentions = {**mentions, **{id: alias for id, alias in used.items() if id not in mentions}}
    if tuple(mentions.values()) == passage.mentions:
        return passage
    return replace(
        passage,
        mentions=tuple(mentions.values()),
        relation_ids=tuple(mentions),
        content_hash=content_hash(passage.content_hash, *mentions),
    )
