import json

import pytest
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY
from llama_index.core.indices.property_graph import (
    DynamicLLMPathExtractor,
    ImplicitPathExtractor,
    SchemaLLMPathExtractor,
    SimpleLLMPathExtractor,
)
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc

from llama_index_graph_rag.extractors.node_triplets import (
    FAILURE_KEY,
    TRIPLETS_KEY,
    extraction_report,
    put_failure,
    put_triplets,
    strip_graph_metadata,
    triplets_from_node,
)
from llama_index_graph_rag.testing.scripted_llm import ScriptedLLM
from llama_index_graph_rag.triplets import Triplet

SCHEMA_ANSWER = json.dumps(
    {
        "triplets": [
            {
                "subject": {"type": "PERSON", "name": 'Ada "A" Holm'},
                "relation": {"type": "WORKED_ON"},
                "object": {"type": "PRODUCT", "name": "Lamp, electric"},
            }
        ]
    }
)
EXTRACTORS = {
    "simple": (
        lambda: SimpleLLMPathExtractor(llm=ScriptedLLM("(Ada, drew, Lamp)\n(Ada, met, Bo)")),
        [("Ada", "Drew", "Lamp"), ("Ada", "Met", "Bo")],
    ),
    "dynamic": (
        lambda: DynamicLLMPathExtractor(
            llm=ScriptedLLM(
                '[{"head": "Ada", "head_type": "PERSON", "relation": "drew", "tail": "Lamp", '
                '"tail_type": "THING"}]'
            )
        ),
        [("Ada", "drew", "Lamp")],
    ),
    "schema": (
        lambda: SchemaLLMPathExtractor(llm=ScriptedLLM(SCHEMA_ANSWER)),
        [('Ada "A" Holm', "WORKED_ON", "Lamp, electric")],
    ),
}


def node(**metadata):
    return TextNode(id_="n", text="Ada drew the lamp.", metadata=metadata)


@pytest.mark.parametrize("name", EXTRACTORS)
@pytest.mark.parametrize("form", ["objects", "dicts"])
async def test_what_llama_index_extractors_leave_is_read(name, form):
    make, expected = EXTRACTORS[name]
    before = node(title="Lamps")
    [after] = await make().acall([before])
    if form == "dicts":
        after = json_to_doc(doc_to_json(after))
        assert isinstance(after.metadata[KG_NODES_KEY][0], dict)
    found = triplets_from_node(after)
    assert list(found.triplets) == expected
    assert found.extracted
    assert found.failure is None
    assert strip_graph_metadata(after).metadata == {"title": "Lamps"}
    assert strip_graph_metadata(after).hash == node(title="Lamps").hash


def test_a_pipeline_and_its_cache_give_the_same_triplets():
    cache = IngestionCache()
    runs = []
    for _ in range(2):
        extractor = SimpleLLMPathExtractor(llm=ScriptedLLM("(Ada, drew, Lamp)"))
        pipeline = IngestionPipeline(transformations=[extractor], cache=cache)
        [out] = pipeline.run(nodes=[node()])
        runs.append(triplets_from_node(out).triplets)
    assert runs[0] == runs[1] == (Triplet("Ada", "Drew", "Lamp"),)


def test_relations_between_chunks_state_no_fact():
    chunk = node()
    chunk.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="document")
    chunk.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="n2")
    ImplicitPathExtractor()([chunk])
    for form in (chunk, json_to_doc(doc_to_json(chunk))):
        found = triplets_from_node(form)
        assert (found.triplets, found.structural, found.extracted) == ((), 2, False)
        assert strip_graph_metadata(form).metadata == {}


def test_our_triplets_survive_the_cache_and_stay_out_of_embeddings():
    marked = node(title="Lamps")
    plain_text = marked.get_content(MetadataMode.EMBED)
    put_triplets(marked, [Triplet("Ada", "drew", "lamp")])
    assert marked.get_content(MetadataMode.EMBED) == plain_text
    again = json_to_doc(doc_to_json(marked))
    assert triplets_from_node(again).triplets == (Triplet("Ada", "drew", "lamp"),)
    stripped = strip_graph_metadata(again)
    assert stripped == node(title="Lamps")
    assert TRIPLETS_KEY in again.metadata  # a copy was stripped, not the node


def test_zero_triplets_failed_and_not_read_are_three_things():
    none, failed, unread = TextNode(id_="0"), TextNode(id_="1"), TextNode(id_="2")
    put_triplets(none, [])
    put_failure(failed, "timed out")
    report = extraction_report([none, failed, unread])
    assert report.passages == 3
    assert report.empty == ("0",)
    assert [(failure.node_id, failure.reason) for failure in report.failures] == [
        ("1", "timed out")
    ]
    assert report.missing == ("2",)
    put_triplets(failed, [])
    assert FAILURE_KEY not in failed.metadata
    assert triplets_from_node(failed).failure is None


def test_user_metadata_of_the_same_name_stays():
    mine = node(nodes=["a", "b"], relations="it is complicated")
    assert strip_graph_metadata(mine) == mine
    assert not triplets_from_node(mine).extracted


def test_unusable_entries_are_listed_not_raised():
    entries = [["a", "b"], ["a", "", "c"], 7, ["a", "b", "c"], ["A", "b", "c"]]
    broken = node(**{TRIPLETS_KEY: entries})
    found = triplets_from_node(broken)
    assert found.triplets == (Triplet("a", "b", "c"),)
    assert len(found.invalid) == 3
    dangling = node(**{KG_RELATIONS_KEY: [{"label": "r", "source_id": "x", "target_id": "y"}]})
    assert triplets_from_node(dangling).triplets == (Triplet("x", "r", "y"),)
