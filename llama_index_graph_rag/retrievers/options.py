"""The numbers of one retrieval, checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from llama_index_graph_rag.checks import cutoff, whole_number
from llama_index_graph_rag.errors import GraphRAGValueError

MAX_WINDOW = 16_384
"""Most hits that a Milvus server gives in one search."""

CandidateRule = Literal["coverage", "expansion"]


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The numbers of the recipe.

    Attributes
    ----------
    similarity_top_k
        Passages to return.
    degree
        Hops of expansion from what was recalled.
    entity_top_k
        Hits for each entity of the question that is looked up by vector.
    relation_top_k, passage_top_k
        Hits of the question among relations and passages, from which the ranking starts.
    entity_similarity_cutoff, relation_similarity_cutoff
        Only hits strictly above it count; None counts all.
    search_known_entities
        Look up entities by vector even if the graph knows them by name.
    candidates
        Which relations a reranker is shown: ``"coverage"``, those that cover the top passages of
        the ranking, then the expansion; ``"expansion"``, the expansion alone, most similar first.
    max_candidates
        How many of them.
    max_seed_relations
        How many of the recalled relations the expansion starts from.
    max_relations_per_entity, max_expanded_relations
        Caps of the expansion at one entity and in all; the most similar to the question stay.
    max_passages_per_relation
        Passages that one relation may bring before those of the others.
    dense_fill
        Whether the passages nearest to the question fill what is missing.

    Examples
    --------
    >>> QueryOptions(degree=-1)
    Traceback (most recent call last):
    ...
    llama_index_graph_rag.errors.GraphRAGValueError: degree=-1 is not between 0 and 16,384
    """

    similarity_top_k: int = 5
    degree: int = 1
    entity_top_k: int = 3
    relation_top_k: int = 50
    passage_top_k: int = 100
    entity_similarity_cutoff: float | None = None
    relation_similarity_cutoff: float | None = None
    search_known_entities: bool = False
    candidates: CandidateRule = "coverage"
    max_candidates: int = 60
    max_seed_relations: int = 20
    max_relations_per_entity: int = 200
    max_expanded_relations: int = 1_000
    max_passages_per_relation: int = 2
    dense_fill: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if field.type == "int":
                least = 0 if name in ("degree", "entity_top_k") else 1
                value = whole_number(name, value, least=least, most=MAX_WINDOW)
            elif field.type == "float | None":
                value = cutoff(name, value)
            elif field.type == "bool" and not isinstance(value, bool):
                raise GraphRAGValueError(f"{name}={value!r} is neither True nor False")
            object.__setattr__(self, name, value)  # frozen; numpy's numbers become Python's
        if self.candidates not in ("coverage", "expansion"):
            raise GraphRAGValueError(
                f"candidates={self.candidates!r} is neither 'coverage' nor 'expansion'"
            )
