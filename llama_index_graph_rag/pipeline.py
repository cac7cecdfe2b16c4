"""GraphRAGPipeline: keywords, query of an existing graph, answer, as a chain of operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from llama_index.core import Settings
from llama_index.core.response_synthesizers import BaseSynthesizer, get_response_synthesizer
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.extractors.keyword_answers import unique_names
from llama_index_graph_rag.extractors.keywords import KeywordExtractor, Keywords
from llama_index_graph_rag.retrievers.knowledge_graph import KnowledgeGraphRetriever
from llama_index_graph_rag.retrievers.knowledge_keywords import ask_keywords, keyword_extractor_for
from llama_index_graph_rag.retrievers.knowledge_nodes import KnowledgeGraphTrace
from llama_index_graph_rag.steps import Process, adrive, call, drive
from llama_index_graph_rag.trace import RetrievalTrace

Context = dict[str, Any]
"""What operators read and write: query, keywords, knowledge, answer, and parameters by name."""


class Operator(ABC):
    """One step: reads the context, writes its results into it.

    Parameters are given when it is made, or else found in the context by name. To add a step of
    your own, write `_process`; for debugging, `run` one alone on a context of your making.
    """

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters

    @abstractmethod
    def _process(self, context: Context) -> Process[None]:
        """Do the step; what is waited for is yielded (see `llama_index_graph_rag.steps`)."""

    def run(self, context: Context) -> Context:
        """Do the step on `context` and return it."""
        drive(self._process(context))
        return context

    async def arun(self, context: Context) -> Context:
        """Async twin of `run`."""
        await adrive(self._process(context))
        return context

    def _value(self, context: Context, name: str, default: Any = None) -> Any:
        return self.parameters.get(name, context.get(name, default))

    def _needed(self, context: Context, name: str) -> Any:
        value = self._value(context, name)
        if value is None:
            raise GraphRAGValueError(
                f"{type(self).__name__} needs {name!r}: give it to the operator, to the pipeline "
                f"or to run()"
            )
        return value


class ExtractKeywords(Operator):
    """Writes ``keywords``, a list, from ``query``.

    Parameters: ``keyword_extractor``, ``llm``, ``max_keywords`` (5), ``max_synonyms`` (10), as of
    `KnowledgeGraphRetriever`.
    """

    def _process(self, context: Context) -> Process[None]:
        extractor = keyword_extractor_for(
            self._value(context, "keyword_extractor"),
            self._value(context, "llm"),
            self._value(context, "max_keywords", 5),
            self._value(context, "max_synonyms", 10),
        )
        trace = RetrievalTrace(question=str(self._needed(context, "query")).strip())
        found = yield from ask_keywords(extractor, trace)
        context["extraction"] = found
        context["keywords"] = found.names
        context["notes"] = [*context.get("notes", ()), *trace.fallbacks]


class QueryGraph(Operator):
    """Writes ``knowledge``, a list of lines, and ``nodes`` from ``keywords``.

    Parameters: ``store``, and every further one of `KnowledgeGraphRetriever`, when it is made.
    """

    def _process(self, context: Context) -> Process[None]:
        keywords = _names(self._needed(context, "keywords"))
        extraction = context.get("extraction")
        # Keywords that were changed on the way are taken as they are now.
        if not isinstance(extraction, Keywords) or extraction.names != keywords:
            extraction = Keywords(tuple(keywords), split_phrases="never")
        parameters = {**self.parameters, "store": self._needed(context, "store")}
        retriever = KnowledgeGraphRetriever(keyword_extractor=_Known(extraction), **parameters)
        query = QueryBundle(str(context.get("query") or " ".join(keywords)))
        found: tuple[list[NodeWithScore], KnowledgeGraphTrace] = yield from call(
            retriever.retrieve_with_trace, retriever.aretrieve_with_trace, query
        )
        context["nodes"], trace = found
        context["knowledge"] = list(trace.sequences)
        context["trace"] = trace
        notes = (*context.get("notes", ()), *trace.fallbacks, *trace.dropped)
        context["notes"] = list(dict.fromkeys(notes))


class SynthesizeAnswer(Operator):
    """Writes ``answer``, a text, and ``response`` from ``query`` and ``nodes``.

    Parameters: ``response_synthesizer``, else ``llm`` (default ``Settings.llm``).
    """

    def _process(self, context: Context) -> Process[None]:
        synthesizer: BaseSynthesizer = self._value(
            context, "response_synthesizer"
        ) or get_response_synthesizer(llm=self._value(context, "llm") or Settings.llm)
        response = yield from call(
            synthesizer.synthesize,
            synthesizer.asynthesize,
            str(self._needed(context, "query")),
            self._value(context, "nodes", []),
        )
        context["response"] = response
        context["answer"] = str(response)


class GraphRAGPipeline:
    """A chain of operators over a graph that already exists.

    Parameters
    ----------
    operators
        The chain; more are added by `add` and by the methods named after the operators. With none,
        keywords are extracted, the graph is queried and the answer written.
    **parameters
        Anything that an operator takes, for the context of every run: ``store``, ``llm``, ...

    Raises
    ------
    GraphRAGTypeError
        If an operator is not an Operator.

    Examples
    --------
    >>> from llama_index.core.graph_stores import SimplePropertyGraphStore
    >>> from llama_index.core.graph_stores.types import Relation
    >>> store = SimplePropertyGraphStore()
    >>> store.upsert_relations(
    ...     [Relation(label="born in", source_id="Euler", target_id="Basel")]
    ... )
    >>> pipeline = GraphRAGPipeline(store=store).extract_keywords().query_graph()
    >>> pipeline.run(query="Where was Euler born?")["knowledge"]
    ['Euler{name: Euler} -[born in]-> Basel{name: Basel}']
    """

    def __init__(self, operators: Sequence[Operator] = (), **parameters: Any) -> None:
        self.operators: list[Operator] = []
        self.parameters = parameters
        for operator in operators:
            self.add(operator)

    def add(self, operator: Operator) -> GraphRAGPipeline:
        """Append an operator and return the pipeline."""
        if not isinstance(operator, Operator):
            raise GraphRAGTypeError(f"an Operator is needed, got {type(operator).__name__}")
        self.operators.append(operator)
        return self

    def extract_keywords(self, **parameters: Any) -> GraphRAGPipeline:
        """Append `ExtractKeywords`."""
        return self.add(ExtractKeywords(**parameters))

    def query_graph(self, **parameters: Any) -> GraphRAGPipeline:
        """Append `QueryGraph`."""
        return self.add(QueryGraph(**parameters))

    def synthesize_answer(self, **parameters: Any) -> GraphRAGPipeline:
        """Append `SynthesizeAnswer`."""
        return self.add(SynthesizeAnswer(**parameters))

    def run(self, **context: Any) -> Context:
        """Run the chain on a context of the pipeline's parameters and `context`; return it."""
        state: Context = {**self.parameters, **context}
        for operator in self.operators or _default_chain():
            state = operator.run(state)
        return state

    async def arun(self, **context: Any) -> Context:
        """Async twin of `run`."""
        state: Context = {**self.parameters, **context}
        for operator in self.operators or _default_chain():
            state = await operator.arun(state)
        return state


class _Known(KeywordExtractor):
    """Keywords that are there already."""

    def __init__(self, keywords: Keywords) -> None:
        self.keywords = keywords

    def extract(self, question: str) -> Keywords:
        return self.keywords

    async def aextract(self, question: str) -> Keywords:
        return self.keywords


def _names(keywords: object) -> list[str]:
    several = isinstance(keywords, Iterable) and not isinstance(keywords, (str, bytes, Mapping))
    names = list(cast("Iterable[str]", keywords)) if several else []
    if not several or not all(isinstance(name, str) for name in names):
        raise GraphRAGTypeError(f"keywords is a list of strings, got {keywords!r:.100}")
    return unique_names(names)


def _default_chain() -> list[Operator]:
    return [ExtractKeywords(), QueryGraph(), SynthesizeAnswer()]
