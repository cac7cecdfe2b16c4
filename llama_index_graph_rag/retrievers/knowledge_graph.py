"""KnowledgeGraphRetriever: knowledge sequences from a graph that already exists."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager
from llama_index.core.graph_stores.types import PropertyGraphStore
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptDictType, PromptMixin, PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.utils import print_text
from llama_index_instrumentation import get_dispatcher

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.explanation import Explaining
from llama_index_graph_rag.extractors.keywords import Keywords
from llama_index_graph_rag.retrievers.knowledge_keywords import (
    KeywordSource,
    ask_keywords,
    keyword_extractor_for,
)
from llama_index_graph_rag.retrievers.knowledge_nodes import (
    KNOWLEDGE_PROMPT,
    KnowledgeGraphTrace,
    KnowledgeWriter,
)
from llama_index_graph_rag.retrievers.knowledge_sequences import (
    Selection,
    select,
    sentence,
    shortened,
)
from llama_index_graph_rag.steps import Process, adrive, call, drive
from llama_index_graph_rag.stores.base import GraphReader, Path
from llama_index_graph_rag.stores.property_graph import PropertyGraphReader
from llama_index_graph_rag.trace import RetrievalTraceEvent

logger = logging.getLogger("llama_index_graph_rag")
dispatcher = get_dispatcher(__name__)

MAX_SCHEMA_LENGTH = 8_000
"""Characters of a schema that are given on."""


class KnowledgeGraphRetriever(Explaining, BaseRetriever):
    """Finds a question's keywords in a knowledge graph and returns the paths around them.

    The successor of LlamaIndex's KnowledgeGraphRAGRetriever, for HugeGraph and every other
    `GraphReader`, and for any LlamaIndex PropertyGraphStore.

    Parameters
    ----------
    store
        The graph; a PropertyGraphStore is wrapped in a `PropertyGraphReader`.
    llm
        Finds the keywords and their synonyms. None, the default: no LLM at query time.
    keyword_extractor
        Finds the keywords in its own way: an extractor, or a function (or coroutine function,
        for async retrieval) from the question to a list of keywords.
    max_keywords, max_synonyms
        Limits of the extractor that `llm` brings. Defaults 5 and 10.
    match_by
        Property by which names are matched to entities. None, the default: the store's own way.
    max_matches
        Most entities a name may match, default 5.
    graph_traversal_depth
        Most edges of a path, default 2.
    max_knowledge_sequence
        Most paths that are given out, default 30.
    max_candidates
        Most paths that are asked of the store, to choose from. Default 4 times
        `max_knowledge_sequence`.
    labels
        Only edges of these predicates. None, the default: of all.
    include_schema
        Show the graph's schema to the LLM that answers, as metadata ``kg_schema``. Default True.
        It is read once, at first use; `refresh_schema` forgets it.
    as_paths
        Return one node a path, each with its score, for rerankers and fusion. Default False: one
        node with all of them.
    embed_model
        Ranks paths by their similarity to the question too. None, the default: by nearness alone.
    knowledge_prompt
        Text of the one node; see KNOWLEDGE_PROMPT.
    callback_manager, object_map, verbose
        As in every LlamaIndex retriever.

    Raises
    ------
    GraphRAGTypeError, GraphRAGValueError
        If an argument cannot be used.

    Notes
    -----
    Paths are ranked by `nearness`, the mean of 1 / (1 + steps to a matched entity) over a path's
    entities, with `embed_model` averaged with the cosine to the question. A path that another one
    contains is not written twice. Errors of the store are raised; an LLM or embedding model that
    fails only costs quality, and the trace says so.

    For users of the old class: ``entity_extract_fn`` is `keyword_extractor`, ``max_entities`` is
    `max_keywords`, templates are updated by `update_prompts`, and the text of the node is the
    prompt ``knowledge_prompt``.

    Examples
    --------
    >>> from llama_index.core.graph_stores import SimplePropertyGraphStore
    >>> from llama_index.core.graph_stores.types import EntityNode, Relation
    >>> store = SimplePropertyGraphStore()
    >>> store.upsert_nodes([EntityNode(name="Euler"), EntityNode(name="Basel")])
    >>> store.upsert_relations(
    ...     [Relation(label="born in", source_id="Euler", target_id="Basel")]
    ... )
    >>> retriever = KnowledgeGraphRetriever(store, keyword_extractor=lambda question: ["Euler"])
    >>> print(retriever.retrieve("Where was Euler born?")[0].text.splitlines()[-1])
    Euler{name: Euler} -[born in]-> Basel{name: Basel}
    """

    def __init__(
        self,
        store: GraphReader | PropertyGraphStore,
        *,
        llm: LLM | None = None,
        keyword_extractor: KeywordSource | None = None,
        max_keywords: int = 5,
        max_synonyms: int = 10,
        match_by: str | None = None,
        max_matches: int = 5,
        graph_traversal_depth: int = 2,
        max_knowledge_sequence: int = 30,
        max_candidates: int | None = None,
        labels: Sequence[str] | None = None,
        include_schema: bool = True,
        as_paths: bool = False,
        embed_model: BaseEmbedding | None = None,
        knowledge_prompt: BasePromptTemplate = KNOWLEDGE_PROMPT,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        if isinstance(store, PropertyGraphStore):
            store = PropertyGraphReader(store)
        if not isinstance(store, GraphReader):
            raise GraphRAGTypeError(
                f"store is a GraphReader or a PropertyGraphStore, got {type(store).__name__}"
            )
        if max_candidates is None:
            max_candidates = 4 * max_knowledge_sequence
        for name, number in (
            ("max_matches", max_matches),
            ("graph_traversal_depth", graph_traversal_depth),
            ("max_knowledge_sequence", max_knowledge_sequence),
        ):
            if number < 1:
                raise GraphRAGValueError(f"{name} must be 1 or more, got {number}")
        if max_candidates < max_knowledge_sequence:
            raise GraphRAGValueError(
                f"max_candidates ({max_candidates}) must be at least max_knowledge_sequence "
                f"({max_knowledge_sequence})"
            )
        self._store = store
        self._keyword_extractor = keyword_extractor_for(
            keyword_extractor, llm, max_keywords, max_synonyms
        )
        self._match_by = match_by
        self._max_matches = max_matches
        self._depth = graph_traversal_depth
        self._limit = max_knowledge_sequence
        self._max_candidates = max_candidates
        self._labels = None if labels is None else tuple(labels)
        self._include_schema = include_schema
        self._schema: str | None = None
        self._as_paths = as_paths
        self._embed_model = embed_model
        self._knowledge_prompt = knowledge_prompt
        super().__init__(callback_manager=callback_manager, object_map=object_map, verbose=verbose)

    @property
    def store(self) -> GraphReader:
        """The graph that is asked."""
        return self._store

    def refresh_schema(self) -> None:
        """Forget the schema, so that the next retrieval reads it anew."""
        self._schema = None

    def retrieve_with_trace(
        self, query: QueryType
    ) -> tuple[list[NodeWithScore], KnowledgeGraphTrace]:
        """Return what `retrieve` does, and the record of how it came about."""
        bundle, trace = _asked(query)
        return drive(self._run(bundle, trace)), trace

    async def aretrieve_with_trace(
        self, query: QueryType
    ) -> tuple[list[NodeWithScore], KnowledgeGraphTrace]:
        """Async twin of `retrieve_with_trace`."""
        bundle, trace = _asked(query)
        return await adrive(self._run(bundle, trace)), trace

    def extract_keywords(self, question: str) -> Keywords:
        """Return the keywords of a question, the first step alone."""
        _, trace = _asked(question)
        return drive(ask_keywords(self._keyword_extractor, trace))

    async def aextract_keywords(self, question: str) -> Keywords:
        """Async twin of `extract_keywords`."""
        _, trace = _asked(question)
        return await adrive(ask_keywords(self._keyword_extractor, trace))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.retrieve_with_trace(query_bundle)[0]

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return (await self.aretrieve_with_trace(query_bundle))[0]

    def _get_prompts(self) -> PromptDictType:
        return {"knowledge_prompt": self._knowledge_prompt}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        self._knowledge_prompt = prompts.get("knowledge_prompt", self._knowledge_prompt)

    def _get_prompt_modules(self) -> PromptMixinType:
        extractor = self._keyword_extractor
        return {"keyword_extractor": extractor} if isinstance(extractor, PromptMixin) else {}

    # --- the steps of one retrieval -------------------------------------------------------------

    def _run(self, bundle: QueryBundle, trace: KnowledgeGraphTrace) -> Process[list[NodeWithScore]]:
        nodes: list[NodeWithScore] = []
        with trace.timed("total"):
            if not trace.question:
                trace.fallbacks.append("the question is empty: nothing was asked")
            else:
                nodes = yield from self._answer(bundle, trace)
        for line in (*trace.fallbacks, *trace.dropped):
            logger.info("%s: %s", type(self).__name__, line)
        dispatcher.event(RetrievalTraceEvent(trace=trace))
        return nodes

    def _answer(
        self, bundle: QueryBundle, trace: KnowledgeGraphTrace
    ) -> Process[list[NodeWithScore]]:
        keywords = yield from ask_keywords(self._keyword_extractor, trace)
        trace.keywords, trace.synonyms = keywords.keywords, keywords.synonyms
        trace.raw = keywords.raw
        self._say(f"Keywords: {shortened(keywords.names)}\n", "green")
        if not keywords.names:
            trace.fallbacks.append("no keywords: there is nothing to look up")
            return []
        ids = yield from self._match(keywords, trace)
        if not ids:
            trace.fallbacks.append(
                f"no match: the graph knows none of {shortened(trace.unmatched)}"
            )
            return []
        paths = yield from self._paths(ids, trace)
        if not paths:
            trace.fallbacks.append("no paths: the matched entities stand alone in the graph")
            return []
        similarities = yield from self._similarities(bundle, paths, trace)
        chosen = select(paths, ids, self._limit, similarities)
        schema = yield from self._read_schema(trace)
        return self._nodes(chosen, schema, trace)

    def _match(self, keywords: Keywords, trace: KnowledgeGraphTrace) -> Process[list[str]]:
        with trace.timed("match"):
            yield from self._find(keywords.names, trace)
            yield from self._find(keywords.fallback_words(trace.unmatched), trace)
        return list(dict.fromkeys(ref.id for refs in trace.matches.values() for ref in refs))

    def _find(self, names: Sequence[str], trace: KnowledgeGraphTrace) -> Process[None]:
        if not names:
            return
        trace.calls["store.match_entities"] += 1
        found = yield from call(
            self._store.match_entities,
            self._store.amatch_entities,
            names,
            by=self._match_by,
            limit=self._max_matches,
        )
        trace.matches.update((name, tuple(refs)) for name, refs in zip(names, found) if refs)
        missed = tuple(name for name, refs in zip(names, found) if not refs)
        trace.unmatched += missed

    def _paths(self, ids: Sequence[str], trace: KnowledgeGraphTrace) -> Process[list[Path]]:
        trace.calls["store.paths"] += 1
        with trace.timed("paths"):
            paths = yield from call(
                self._store.paths,
                self._store.apaths,
                ids,
                max_depth=self._depth,
                limit=self._max_candidates,
                labels=self._labels,
            )
        if len(paths) == self._max_candidates:
            trace.dropped.append(
                f"the store returned its {len(paths)} paths and may have more; "
                f"raise max_candidates to see them"
            )
        return paths

    def _similarities(
        self, bundle: QueryBundle, paths: Sequence[Path], trace: KnowledgeGraphTrace
    ) -> Process[list[float] | None]:
        model = self._embed_model
        if model is None:
            return None
        try:
            with trace.timed("embedding"):
                trace.calls["embedding"] += 1
                rows = yield from call(
                    model.get_text_embedding_batch,
                    model.aget_text_embedding_batch,
                    [sentence(path) for path in paths],
                )
                query = bundle.embedding
                if query is None or len(query) != len(rows[0]):
                    trace.calls["embedding"] += 1
                    query = yield from call(
                        model.get_agg_embedding_from_queries,
                        model.aget_agg_embedding_from_queries,
                        [text.strip() for text in bundle.embedding_strs],
                    )
            texts, question = np.asarray(rows, dtype=float), np.asarray(query, dtype=float)
            norms = np.linalg.norm(texts, axis=1) * np.linalg.norm(question)
            cosines: list[float] = (texts @ question / np.maximum(norms, 1e-12)).tolist()
        # An embedding model is a service like the LLM: without it the graph's ranking stands.
        except Exception as error:
            trace.fallbacks.append(f"ranked by nearness alone, the embedding failed: {error!r}")
            return None
        return cosines

    def _read_schema(self, trace: KnowledgeGraphTrace) -> Process[str]:
        if not self._include_schema or self._as_paths:
            return ""
        if self._schema is None:
            trace.calls["store.schema"] += 1
            try:
                self._schema = yield from call(self._store.schema, self._store.aschema)
            # What a store raises here is its own; the sequences are worth having without.
            except Exception as error:
                trace.fallbacks.append(f"without the schema, the store did not give it: {error!r}")
                return ""
        if len(self._schema) > MAX_SCHEMA_LENGTH:
            trace.dropped.append(
                f"{len(self._schema) - MAX_SCHEMA_LENGTH:,} characters of the schema, over the "
                f"limit of {MAX_SCHEMA_LENGTH:,}"
            )
        return self._schema[:MAX_SCHEMA_LENGTH]

    def _nodes(
        self, chosen: Selection, schema: str, trace: KnowledgeGraphTrace
    ) -> list[NodeWithScore]:
        knowledge = KnowledgeWriter(chosen, trace, self._limit)
        if self._as_paths:
            return knowledge.nodes()
        node = knowledge.node(self._knowledge_prompt, self._depth, schema)
        self._say(f"{node.text}\n", "blue")
        return [node]

    def _say(self, text: str, color: str) -> None:
        if self._verbose:
            print_text(text, color=color)


def _asked(query: QueryType) -> tuple[QueryBundle, KnowledgeGraphTrace]:
    bundle = query if isinstance(query, QueryBundle) else QueryBundle(query)
    return bundle, KnowledgeGraphTrace(question=bundle.query_str.strip())
