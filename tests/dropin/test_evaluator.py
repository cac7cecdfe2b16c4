"""RetrieverEvaluator finds our passages by their ids."""

from __future__ import annotations

from llama_index.core.evaluation import RetrieverEvaluator

from llama_index_graph_rag.demo import load_demo


async def test_hit_rate_and_mrr(index, retriever) -> None:
    questions = load_demo().questions
    evaluator = RetrieverEvaluator.from_metric_names(["hit_rate", "mrr"], retriever=retriever)
    for question in questions:
        gold = list(question.gold_passage_ids)
        result = await evaluator.aevaluate(question.question, expected_ids=gold)
        found = [node.node_id for node in retriever.retrieve(question.question)]
        assert result.retrieved_ids == found
        first = min((found.index(id) for id in gold if id in found), default=None)
        assert result.metric_vals_dict["mrr"] == (0 if first is None else 1 / (1 + first))
        assert result.metric_vals_dict["hit_rate"] == float(first is not None)


def test_sync(retriever) -> None:
    question = load_demo().questions[0]
    evaluator = RetrieverEvaluator.from_metric_names(["hit_rate", "mrr"], retriever=retriever)
    result = evaluator.evaluate(question.question, expected_ids=["leonhard-euler"])
    assert result.metric_vals_dict["hit_rate"] == 1.0
