"""RelationRetriever with postprocessors behind it, against GraphRAGRetriever with an LLM."""

from __future__ import annotations

import logging

import pytest
from choosing_llm import ANSWER, WAY, choosing_llm, is_rerank
from llama_index.core.postprocessor import LLMRerank, SimilarityPostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llama_index_graph_rag import (
    GraphRAGTypeError,
    GraphRAGValueError,
    LLMEntityExtractor,
    LLMRelationRerank,
    QueryOptions,
    RelationRetriever,
    RelationsToPassages,
)
from llama_index_graph_rag.demo import load_demo
from llama_index_graph_rag.postprocessors.relation_choice import RelationChoice
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM


def failing() -> ScriptedLLM:
    """Fails where it is asked to choose."""

    def answer(prompt: str):
        return RuntimeError("the model is down") if is_rerank(prompt) else ANSWER

    return ScriptedLLM(answer)


def babbling() -> ScriptedLLM:
    return ScriptedLLM(lambda prompt: "I cannot say." if is_rerank(prompt) else ANSWER)


def outline(nodes):
    return [
        (n.node_id, n.score, [(use.id, use.text) for use in n.relations], n.node.hash)
        for n in nodes
    ]


@pytest.mark.parametrize("make_llm", [lambda: choosing_llm(*WAY), failing, babbling])
@pytest.mark.parametrize("place", range(5))
async def test_the_same_passages(index, embed_model, make_llm, place) -> None:
    top_k = 2 + place
    question = load_demo().questions[place].question
    llm, store = make_llm(), index.store
    direct = index.as_retriever(llm=llm, similarity_top_k=top_k)
    engine = RetrieverQueryEngine.from_args(
        RelationRetriever(
            store, embed_model=embed_model, options=QueryOptions(similarity_top_k=top_k)
        ),
        llm=llm,
        node_postprocessors=[LLMRelationRerank(llm=llm), RelationsToPassages(store)],
    )
    expected = outline(direct.retrieve(question))
    assert len(expected) == top_k
    assert outline(await direct.aretrieve(question)) == expected
    for response in (engine.query(question), await engine.aquery(question)):
        assert outline(response.source_nodes) == expected
        assert str(response) == ANSWER


def test_the_traces_agree(index, embed_model, question) -> None:
    llm = choosing_llm(*WAY)
    _, direct = index.as_retriever(llm=llm).retrieve_with_trace(question)
    relations, trace = RelationRetriever(index.store, embed_model=embed_model).retrieve_with_trace(
        question
    )
    assert direct.candidates == trace.candidates
    chosen = LLMRelationRerank(llm=llm).postprocess_nodes(relations, query_str=question)
    passages = RelationsToPassages(index.store).postprocess_nodes(chosen, query_str=question)
    assert [hit.text for hit in trace.chosen] == list(WAY)
    assert trace.chosen == direct.chosen
    assert (trace.reasoning, trace.llm_answer) == (direct.reasoning, direct.llm_answer)
    assert trace.results == direct.results
    assert trace.calls == direct.calls
    assert [result.id for result in trace.results] == [node.node_id for node in passages]


def test_a_processor_between_that_drops_relations(index, embed_model, question) -> None:
    relations, trace = RelationRetriever(index.store, embed_model=embed_model).retrieve_with_trace(
        question
    )
    later = relations[5:]
    wanted = later[2].node.get_content()
    chosen = LLMRelationRerank(llm=choosing_llm(wanted)).postprocess_nodes(
        later, query_str=question
    )
    assert [node.node.get_content() for node in chosen] == [wanted]
    assert [hit.text for hit in trace.chosen] == [wanted]


async def test_relations_of_several_questions_mixed(index, embed_model) -> None:
    relations = RelationRetriever(
        index.store,
        embed_model=embed_model,
        options=QueryOptions(similarity_top_k=1, max_candidates=1),
    )
    first, second = (
        relations.retrieve(asked)[0] for asked in ("Hydrodynamica", "the trade winds of Halley")
    )
    to_passages = RelationsToPassages(index.store, similarity_top_k=2)
    for nodes in (
        to_passages.postprocess_nodes([first, second]),
        await to_passages.apostprocess_nodes([first, second]),
    ):
        assert [node.node_id for node in nodes] == ["daniel-bernoulli", "edmond-halley"]
    assert first.state.trace.dropped == []


@pytest.mark.parametrize("top_k", [1, 3, 12])
def test_its_own_number_of_passages(index, embed_model, question, top_k) -> None:
    relations = RelationRetriever(index.store, embed_model=embed_model).retrieve(question)
    nodes = RelationsToPassages(index.store, similarity_top_k=top_k).postprocess_nodes(relations)
    assert len(nodes) == top_k


def test_no_relation_left_over(index, embed_model, question) -> None:
    relations = RelationRetriever(index.store, embed_model=embed_model).retrieve(question)
    none = SimilarityPostprocessor(similarity_cutoff=2.0).postprocess_nodes(relations)
    rerank = LLMRelationRerank(llm=ScriptedLLM([]))
    assert rerank.postprocess_nodes(none, query_str=question) == []
    assert RelationsToPassages(index.store).postprocess_nodes(none, query_str=question) == []


async def test_rebuilt_nodes_are_mapped_with_a_warning(
    index, embed_model, question, caplog
) -> None:
    relations = RelationRetriever(index.store, embed_model=embed_model).retrieve(question)
    wanted = [node for node in relations if node.node.get_content() in WAY]
    rebuilt = [
        NodeWithScore(node=TextNode(id_=n.node_id, text=n.node.get_content()), score=n.score)
        for n in sorted(wanted, key=lambda node: WAY.index(node.node.get_content()))
    ]
    to_passages = RelationsToPassages(index.store)
    for asynchronous in (False, True):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "llama_index_graph_rag"):
            bundle = QueryBundle(question)
            nodes = (
                await to_passages.apostprocess_nodes(rebuilt, query_bundle=bundle)
                if asynchronous
                else to_passages.postprocess_nodes(rebuilt, query_bundle=bundle)
            )
        assert [node.node_id for node in nodes] == ["leonhard-euler", "daniel-bernoulli"]
        assert [node.relations[0].text for node in nodes] == list(WAY)
        assert "lost" in caplog.text
        assert all(0 < node.score <= 1 for node in nodes)


def test_prompts_are_reached_from_the_retriever_and_from_an_engine(index, question) -> None:
    llm = choosing_llm(*WAY)
    retriever = index.as_retriever(llm=llm)
    name = "relation_reranker:relation_rerank_prompt"
    assert set(retriever.get_prompts()) == {name}
    retriever.update_prompts({name: PromptTemplate("Pick from {relations} for {question}")})
    retriever.retrieve(question)
    assert llm.calls[-1].prompt.startswith("user: Pick from [1] ")
    assert question in llm.calls[-1].prompt
    assert index.as_retriever().get_prompts() == {}

    rerank = LLMRelationRerank(llm=llm)
    rerank.update_prompts({"relation_rerank_prompt": PromptTemplate("Take of {relations}")})
    own = index.as_retriever(relation_reranker=rerank, entity_extractor=LLMEntityExtractor(llm))
    own.retrieve(question)
    assert llm.calls[-1].prompt.startswith("user: Take of [1] ")
    extraction = "entity_extractor:query_entities_prompt"
    assert set(own.get_prompts()) == {name, extraction}
    own.update_prompts({extraction: PromptTemplate("Names in {question}?")})
    own.retrieve(question)
    assert llm.calls[-2].prompt == f"user: Names in {question}?"


class Own:
    """A reranker that is no LLM and no postprocessor: the last relation."""

    def choose(self, question, candidates):
        return RelationChoice((len(candidates) - 1,))

    async def achoose(self, question, candidates):
        return self.choose(question, candidates)


async def test_a_reranker_of_ones_own(index, question) -> None:
    retriever = index.as_retriever(relation_reranker=Own())
    for _, trace in (
        retriever.retrieve_with_trace(question),
        await retriever.aretrieve_with_trace(question),
    ):
        assert trace.chosen == trace.candidates[-1:]
        assert trace.results[0].origin == "chosen"
    assert retriever.get_prompts() == {}


def test_a_reranker_of_passages_is_refused(index) -> None:
    with pytest.raises(GraphRAGTypeError, match="node_postprocessors"):
        index.as_retriever(relation_reranker=LLMRerank(llm=ScriptedLLM([])))


async def test_filters_hold_where_nodes_were_rebuilt(index, embed_model, question) -> None:
    title = load_demo().nodes[0].metadata["title"]
    filters = MetadataFilters(filters=[MetadataFilter(key="title", value=title)])
    found = RelationRetriever(index.store, embed_model=embed_model).retrieve(question)
    rebuilt = [NodeWithScore(node=node.node, score=node.score) for node in found]
    to_passages = RelationsToPassages(index.store, filters=filters)
    passages = to_passages.postprocess_nodes(rebuilt, query_str=question)
    assert [node.metadata["title"] for node in passages] == [title]
    twins = await to_passages.apostprocess_nodes(rebuilt, query_str=question)
    assert outline(twins) == outline(passages)


@pytest.mark.parametrize("option", ["similarity_top_k", "max_passages_per_relation"])
def test_numbers_of_passages_are_checked(index, option) -> None:
    with pytest.raises(GraphRAGValueError, match=f"{option}=0"):
        RelationsToPassages(index.store, **{option: 0})
