"""GraphRAGRetriever: passages that answer a question over several hops."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptMixin, PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores import MetadataFilters

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.extractors.query import EntityExtractor, NameFunction
from llama_index_graph_rag.graph.ranking import DEFAULT_RANKING, Ranking
from llama_index_graph_rag.postprocessors.relation_rerank import (
    LLMRelationRerank,
    RelationReranker,
)
from llama_index_graph_rag.query_state import GraphRAGTrace, QueryState
from llama_index_graph_rag.retrievers.base import VOCABULARY, GraphStoreRetriever
from llama_index_graph_rag.retrievers.options import CandidateRule, QueryOptions
from llama_index_graph_rag.steps import Process, call
from llama_index_graph_rag.stores.base import GraphIndexStore


class GraphRAGRetriever(GraphStoreRetriever):
    """Finds passages through the entities and relations that they state.

    The question recalls relations, entities and passages from the store; matrices grow them into
    a subgraph and rank its passages; an LLM, if there is one, picks the relations that help, in
    one call, and their passages come first. Whatever happens to the LLM, passages come back: the
    graph's ranking stands in and the trace says why.

    Parameters
    ----------
    store
        Where the index is kept.
    llm
        Short for ``relation_reranker=LLMRelationRerank(llm=llm)``. **None means: no LLM when a
        question is asked**; it never falls back to ``Settings.llm``.
    relation_reranker
        Chooses among the relations; give this or `llm`.
    entity_extractor
        What finds the question's entities: an extractor, a function from the question to names,
        or None. Default: the graph's own names, found in the question without an LLM.
    embed_model
        The model that the index was built with. Default: ``Settings.embed_model``.
    ranking
        Name or instance of the ranking that orders passages without an LLM.
    similarity_top_k
        Passages to return. Default 5.
    degree
        Hops of the expansion: what a reranker is shown beyond the relations that cover the top
        passages. Default 1. The ranking walks the whole graph around what was recalled.
    entity_top_k
        Hits for each entity that is looked up by vector. Default 3.
    relation_top_k, passage_top_k
        Hits of the question from which the ranking starts. Default 50 and 100, which is what the
        default ranking uses: for more, give a ranking that looks further too, such as
        ``HopWalk(passage_top_k=500)``.
    entity_similarity_cutoff, relation_similarity_cutoff
        Only hits strictly above it count. Default None: all.
    max_candidates
        Relations shown to the reranker. Default 60.
    rerank_top_n
        Relations that the LLM may choose. Default 3; with `llm` only.
    dense_fill
        Whether the passages nearest to the question fill what is missing. Default True.
    filters
        Metadata filters on passages: relations without a permitted passage are neither ranked,
        nor shown to an LLM, nor given as evidence.
    search_known_entities, candidates, max_seed_relations, max_relations_per_entity, \
max_expanded_relations, max_passages_per_relation
        The finer numbers of the recipe, see `QueryOptions`.

    Raises
    ------
    GraphRAGValueError
        If a number is out of range, or both `llm` and `relation_reranker` are given.
    GraphRAGTypeError
        If `relation_reranker` cannot choose relations.

    Notes
    -----
    Cost of a question: one embedding; two Milvus searches and one get, and what the ranking asks
    for besides (the default one: one more search and two gets of vectors); one embedding and one
    search more where the question names entities that the graph does not know; one LLM call with
    a reranker, and one get of vectors for what it is shown with ``candidates="coverage"``; one
    more LLM call with `LLMEntityExtractor`; with filters, one query the first time. Where the store
    holds a copy of the vectors (`MilvusGraphStore` on Milvus Lite), searches and vectors cost no
    call: two gets are left, one of the texts of relations and one of passages.

    Examples
    --------
    >>> from llama_index.core import MockEmbedding
    >>> from llama_index.core.schema import TextNode
    >>> from llama_index_graph_rag import GraphRAGIndex
    >>> import tempfile
    >>> index = GraphRAGIndex.from_triplets(
    ...     [TextNode(text="Euler was a student of Johann Bernoulli.")],
    ...     [[("Euler", "was a student of", "Johann Bernoulli")]],
    ...     uri=tempfile.mkdtemp() + "/demo.db", embed_model=MockEmbedding(8),
    ... )
    >>> nodes = index.as_retriever(similarity_top_k=1).retrieve("Who taught Euler?")
    >>> nodes[0].text
    'Euler was a student of Johann Bernoulli.'
    >>> index.close()
    """

    def __init__(
        self,
        store: GraphIndexStore,
        *,
        llm: LLM | None = None,
        relation_reranker: RelationReranker | None = None,
        entity_extractor: EntityExtractor | NameFunction | None = VOCABULARY,
        embed_model: BaseEmbedding | None = None,
        ranking: str | Ranking = DEFAULT_RANKING,
        similarity_top_k: int = 5,
        degree: int = 1,
        entity_top_k: int = 3,
        relation_top_k: int = 50,
        passage_top_k: int = 100,
        entity_similarity_cutoff: float | None = None,
        relation_similarity_cutoff: float | None = None,
        search_known_entities: bool = False,
        candidates: CandidateRule = "coverage",
        max_candidates: int = 60,
        rerank_top_n: int = 3,
        max_seed_relations: int = 20,
        max_relations_per_entity: int = 200,
        max_expanded_relations: int = 1_000,
        max_passages_per_relation: int = 2,
        dense_fill: bool = True,
        filters: MetadataFilters | None = None,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        if llm is not None and relation_reranker is not None:
            raise GraphRAGValueError(
                "both llm and relation_reranker are given; llm=X is short for "
                "relation_reranker=LLMRelationRerank(llm=X): give one of them"
            )
        if relation_reranker is not None and not isinstance(relation_reranker, RelationReranker):
            raise GraphRAGTypeError(
                f"relation_reranker={relation_reranker!r} has no choose and achoose; give an "
                "LLMRelationRerank. Rerankers of passages go into node_postprocessors"
            )
        if llm is not None:
            relation_reranker = LLMRelationRerank(llm=llm, rerank_top_n=rerank_top_n)
        self._reranker = relation_reranker
        super().__init__(
            store,
            entity_extractor=entity_extractor,
            embed_model=embed_model,
            ranking=ranking,
            filters=filters,
            options=QueryOptions(
                similarity_top_k=similarity_top_k,
                degree=degree,
                entity_top_k=entity_top_k,
                relation_top_k=relation_top_k,
                passage_top_k=passage_top_k,
                entity_similarity_cutoff=entity_similarity_cutoff,
                relation_similarity_cutoff=relation_similarity_cutoff,
                search_known_entities=search_known_entities,
                candidates=candidates,
                max_candidates=max_candidates,
                max_seed_relations=max_seed_relations,
                max_relations_per_entity=max_relations_per_entity,
                max_expanded_relations=max_expanded_relations,
                max_passages_per_relation=max_passages_per_relation,
                dense_fill=dense_fill,
            ),
            callback_manager=callback_manager,
            object_map=object_map,
            verbose=verbose,
        )

    def _get_prompt_modules(self) -> PromptMixinType:
        modules = super()._get_prompt_modules()
        if isinstance(self._reranker, PromptMixin):
            modules["relation_reranker"] = self._reranker
        return modules

    def _process(self, bundle: QueryBundle, trace: GraphRAGTrace) -> Process[list[NodeWithScore]]:
        if self._reranker is None:
            state = yield from self._query.passages(bundle, trace)
            return state.nodes(state.select([]))
        state = yield from self._query.candidates(bundle, trace)
        chosen = yield from self._choose(self._reranker, state)
        return state.nodes(state.select(chosen))

    def _choose(self, reranker: RelationReranker, state: QueryState) -> Process[list[int]]:
        trace, candidates = state.trace, state.candidates
        if not candidates:
            trace.fallbacks.append("relation rerank: no relation stands for choice")
            return []
        texts = [candidate.text for candidate in candidates]
        with trace.timed("llm"):
            choice = yield from call(reranker.choose, reranker.achoose, trace.question, texts)
        state.record(choice, [candidate.id for candidate in candidates])
        return [candidates[index].row for index in choice.indices]
