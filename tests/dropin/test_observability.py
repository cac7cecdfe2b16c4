"""OpenInference sees our retrievers and rerankers without any help."""

from __future__ import annotations

import json

import pytest
from choosing_llm import WAY, choosing_llm
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index_instrumentation.span import active_span_id

from llama_index_graph_rag import (
    LLMRelationRerank,
    RelationRetriever,
    RelationsToPassages,
    RetrievalTraceEvent,
)

openinference = pytest.importorskip(
    "openinference.instrumentation.llama_index",
    reason="needs openinference-instrumentation-llama-index",
)
pytest.importorskip("opentelemetry.sdk.trace", reason="needs opentelemetry-sdk")

KIND = "openinference.span.kind"


@pytest.fixture
def spans():
    """Return a function that gives the finished spans, and forgets them."""
    from openinference.instrumentation import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()  # OpenTelemetry's own drops all but 128 attributes
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = openinference.LlamaIndexInstrumentor()
    instrumentor.instrument(tracer_provider=provider)

    def finished():
        seen = exporter.get_finished_spans()
        exporter.clear()
        return seen

    yield finished
    instrumentor.uninstrument()


def of_kind(seen, kind):
    return [span for span in seen if span.attributes.get(KIND) == kind]


def documents(span, what):
    prefix = f"{what}."
    return {
        value
        for key, value in span.attributes.items()
        if key.startswith(prefix) and key.endswith("document.id")
    }


async def test_retriever_spans(index, retriever, question, spans, caplog) -> None:
    ids = {node.node_id for node in retriever.retrieve(question)}
    spans()
    for asynchronous in (False, True):
        await retriever.aretrieve(question) if asynchronous else retriever.retrieve(question)
        found = of_kind(spans(), "RETRIEVER")
        assert "GraphRAGRetriever" in {span.name.partition(".")[0] for span in found}
        assert any(documents(span, "retrieval.documents") == ids for span in found)
        assert all(span.status.is_ok for span in found)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


class _Spans(BaseEventHandler):
    seen: list[str] = []  # noqa: RUF012

    def handle(self, event, **kwargs) -> None:
        if isinstance(event, RetrievalTraceEvent):
            self.seen.append(active_span_id.get())


async def test_a_handler_finds_the_span_of_a_trace(retriever, question) -> None:
    handler, root = _Spans(), get_dispatcher()
    root.add_event_handler(handler)
    try:
        retriever.retrieve(question)
        await retriever.aretrieve(question)
    finally:
        root.event_handlers.remove(handler)
    names = [id.partition("-")[0] for id in handler.seen]
    assert names == ["GraphRAGRetriever._retrieve", "GraphRAGRetriever._aretrieve"]


async def test_reranker_spans_below_the_engine(index, embed_model, question, spans) -> None:
    llm = choosing_llm(*WAY)
    engine = RetrieverQueryEngine.from_args(
        RelationRetriever(index.store, embed_model=embed_model),
        llm=llm,
        node_postprocessors=[LLMRelationRerank(llm=llm), RelationsToPassages(index.store)],
    )
    for asynchronous in (False, True):
        await engine.aquery(question) if asynchronous else engine.query(question)
        seen = spans()
        assert of_kind(seen, "RETRIEVER")
        reranks = [span for span in of_kind(seen, "RERANKER") if "LLMRelationRerank" in span.name]
        assert reranks, [(span.name, span.attributes.get(KIND)) for span in seen]
        span = reranks[-1]
        assert span.attributes["reranker.query"] == question
        assert span.attributes["reranker.model_name"] == "scripted"
        assert span.attributes["reranker.top_k"] == 3
        assert len(documents(span, "reranker.output_documents")) == 2
        # Everything stands in one trace, and no span holds a matrix.
        assert len({span.context.trace_id for span in seen}) == 1
        assert max(len(json.dumps(dict(span.attributes))) for span in seen) < 200_000


async def test_an_error_ends_the_span_as_one(retriever, question, spans, monkeypatch) -> None:
    def broken(**kwargs):
        raise RuntimeError("no Milvus")

    monkeypatch.setattr(retriever.store, "search", broken)
    for asynchronous in (False, True):
        with pytest.raises(RuntimeError, match="no Milvus"):
            await retriever.aretrieve(question) if asynchronous else retriever.retrieve(question)
        found = of_kind(spans(), "RETRIEVER")
        # Not all of them: a span of an earlier test may end late, when it is collected.
        assert any(not span.status.is_ok for span in found)
