import pytest
from llama_index.core.schema import TextNode

from llama_index_graph_rag.errors import GraphRAGTypeError, GraphRAGValueError
from llama_index_graph_rag.estimate import estimate
from llama_index_graph_rag.extractors.node_triplets import put_triplets
from llama_index_graph_rag.extractors.triplets import LLMTripletExtractor
from llama_index_graph_rag.testing.openai_server import OpenAIServer
from llama_index_graph_rag.triplets import Triplet


def words(text):
    return text.split()


def test_counts_grow_with_the_texts_and_money_with_the_prices():
    one = estimate(["Euler was born in Basel."], tokenizer=words)
    two = estimate(["Euler was born in Basel."] * 2, tokenizer=words)
    assert (one.chunks, one.llm_calls, one.money) == (1, 1, None)
    assert (two.chunks, two.llm_calls) == (2, 2)
    assert two.prompt_tokens == 2 * one.prompt_tokens
    priced = estimate(
        ["Euler was born in Basel."],
        price_per_million_input=2.0,
        price_per_million_output=8.0,
        tokenizer=words,
    )
    assert priced.money == pytest.approx((2 * one.prompt_tokens + 8 * one.completion_tokens) / 1e6)


def test_what_is_there_already_costs_no_call():
    done = TextNode(text="Ada knows Bo.")
    put_triplets(done, [Triplet("Ada", "knows", "Bo")])
    found = estimate([done, TextNode(text=" ")], tokenizer=words)
    assert (found.chunks, found.llm_calls, found.prompt_tokens) == (2, 0, 0)
    assert found.embedding_tokens >= 3
    assert estimate([]).chunks == 0


def test_calls_and_prompt_tokens_are_those_of_the_run():
    nodes = [TextNode(text=f"passage {i} about {'x ' * i}") for i in range(5)]
    with OpenAIServer('{"triplets": []}') as server:
        results = list(LLMTripletExtractor(server.llm(), structured=False).extract(nodes))
        prompts = [body["messages"][-1]["content"] for body in server.chats]
    found = estimate(nodes, tokenizer=words)
    assert found.llm_calls == sum(item.usage.calls for item in results) == 5
    assert found.prompt_tokens == sum(len(words(prompt)) for prompt in prompts)


def test_bad_arguments():
    with pytest.raises(GraphRAGValueError, match="price_per_million_output=-1"):
        estimate(["x"], price_per_million_output=-1)
    with pytest.raises(GraphRAGTypeError, match="got int"):
        estimate([7])
