"""What Milvus decides of a filter is what LlamaIndex decides."""

from __future__ import annotations

import os
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.stores.milvus import MilvusGraphStore
from llama_index_graph_rag.stores.milvus_filters import (
    filters_expression,
    ids_expression,
    passes,
    quote,
)
from llama_index_graph_rag.testing.graph_index_store import ODD_IDS
from llama_index_graph_rag.testing.toy_rows import (
    DIMENSION,
    batch,
    passage_row,
)

ODD_TEXTS = [
    "",
    "a",
    "A",
    "a b",
    "it's",
    'say "hi"',
    "back\\slash",
    "line\nbreak",
    "欧拉",
    "🧮",
    "1",
]
METADATA = [
    {},
    *({"key": text} for text in ODD_TEXTS),
    *({"key": number} for number in (0, 1, 2, -1, 1707, 0.5, 1.0, 1e20)),
    {"key": True},
    {"key": False},
    {"key": None},
    {"key": ["a", "b"]},
    {"key": []},
    {"key": "a", "other": 1},
    {"key": 1, "other": "a"},
    {"other": True},
    {"page label": "iv", "other": None},
    {'q"uote': "a", "sla/sh": 1, "do.t": "b", "ключ": "c", "": "d"},
    {"id": "my own", "text": "mine", "relation_ids": "r", "content_hash": "c", "mentions": 1},
]
PLACES = [
    "lite",
    pytest.param(
        "server",
        marks=pytest.mark.skipif(
            not os.environ.get("GRAPH_RAG_MILVUS_URL"),
            reason="needs GRAPH_RAG_MILVUS_URL, see tests/servers/README.md",
        ),
    ),
]


@pytest.fixture(scope="module", params=PLACES)
def store(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("filters")
    uri = folder / "index.db" if request.param == "lite" else os.environ["GRAPH_RAG_MILVUS_URL"]
    store = MilvusGraphStore(uri, cache_dir=folder, collection_prefix="filters")
    store.create(DIMENSION)
    rows = [passage_row(f"p{n:02d}", document=document(n)) for n in range(len(METADATA))]
    for row, metadata in zip(rows, METADATA):
        row.node.metadata = metadata
    store.upsert(batch(*rows))
    yield store
    store.close()


def document(n: int) -> str | None:
    return f"d{n % 3}" if n % 4 else None


def decided_here(store, filters: MetadataFilters) -> set[str]:
    """What LlamaIndex's own rules pass, from the metadata as it was given."""
    permitted = set()
    for n, given_ in enumerate(METADATA):
        ids = ("doc_id", "document_id", "ref_doc_id")
        documents = dict.fromkeys(ids, document(n) or "None")
        if passes(filters, {**given_, **documents}):
            permitted.add(f"p{n:02d}")
    return permitted


def only(key, operator, value=None) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, operator=operator, value=value)])


KEYS = st.sampled_from(
    [
        "key",
        "other",
        "page label",
        'q"uote',
        "sla/sh",
        "do.t",
        "ключ",
        "",
        "none such",
        "id",
        "text",
        "relation_ids",
        "doc_id",
        "ref_doc_id",
        "content_hash",
    ]
)
VALUES = st.sampled_from([*ODD_TEXTS, "d1", "None", 0, 1, 2, 1707, -1, 2**60, 0.5, 1.0, 0.0])
EQUALITY = st.builds(
    MetadataFilter,
    key=KEYS,
    operator=st.sampled_from([FilterOperator.EQ, FilterOperator.NE]),
    value=VALUES,
)
LISTS = st.builds(
    MetadataFilter,
    key=KEYS,
    operator=st.sampled_from([FilterOperator.IN, FilterOperator.NIN]),
    value=st.one_of(
        st.lists(st.sampled_from([*ODD_TEXTS, "d1"]), max_size=3),
        st.lists(st.sampled_from([0, 1, 1707, -1]), max_size=3),
        st.lists(st.sampled_from([0.5, 1.0]), max_size=3),
    ),
)
EMPTY = st.builds(
    MetadataFilter, key=KEYS, operator=st.just(FilterOperator.IS_EMPTY), value=st.none()
)
FILTERS = st.recursive(
    st.one_of(EQUALITY, LISTS, EMPTY),
    lambda inner: st.builds(
        MetadataFilters,
        filters=st.lists(inner, max_size=3),
        condition=st.sampled_from(list(FilterCondition)),
    ),
    max_leaves=5,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(filters=st.builds(MetadataFilters, filters=st.lists(FILTERS, max_size=3)))
def test_filters_pass_what_llamaindex_passes(store, filters):
    assert store.permitted(filters) == decided_here(store, filters)


@pytest.mark.parametrize("value", [0, 1, 0.5, 1706, -1, 1e20])
@pytest.mark.parametrize("operator", [">", ">=", "<", "<="])
def test_numbers_are_compared_as_llamaindex_compares_them(store, operator, value):
    filters = only("key", operator, value)
    numbers = {
        f"p{n:02d}" for n, m in enumerate(METADATA) if isinstance(m.get("key"), (bool, int, float))
    }
    assert filters_expression(filters) is not None
    found = store.permitted(filters)
    assert found <= numbers  # what is no number passes no comparison with one
    assert found == {id for id in numbers if passes(filters, {"key": METADATA[int(id[1:])]["key"]})}


@pytest.mark.parametrize(
    ("operator", "value", "passing"),
    [
        ("contains", "a", [["a", "b"]]),
        ("any", ["a", "z"], [["a", "b"]]),
        ("all", ["a", "b"], [["a", "b"]]),
    ],
)
def test_operators_that_milvus_is_not_asked(store, operator, value, passing):
    filters = MetadataFilters(
        filters=[
            MetadataFilter(key="tags", operator=operator, value=value),
        ]
    )
    assert filters_expression(filters) is None
    assert passes(filters, {"tags": passing[0]})
    assert not passes(filters, {"tags": ["z" * 2]})
    assert not passes(filters, {})
    assert store.permitted(filters) == set()


@pytest.mark.parametrize("operator", ["text_match", "text_match_insensitive"])
def test_matching_text(store, operator):
    assert store.permitted(only("page label", operator, "i")) == {f"p{len(METADATA) - 3:02d}"}


def test_a_filter_that_does_not_fit_is_named(store):
    with pytest.raises(GraphRAGValueError, match="'key'"):
        store.permitted(only("key", "text_match", "a"))


@pytest.mark.parametrize(
    "text",
    [
        '" or id != "',
        '"] or id not in ["',
        "\\",
        '\\" or true or "',
        "') or (1 == 1",
        "\n",
        "%",
        "{ids}",
        "null",
    ],
)
def test_a_value_is_never_part_of_the_expression(store, text):
    for key in ("key", "doc_id", text):
        assert store.permitted(only(key, "==", text)) == set()
        assert store.permitted(only(key, "in", [text])) == set()
        assert len(store.permitted(only(key, "!=", text))) == len(METADATA)


def test_answers_are_kept_until_the_graph_changes(store, monkeypatch):
    filters = only("key", "==", "a")
    first = store.permitted(filters)
    calls = count()
    scan = store.connection.scan
    monkeypatch.setattr(
        store.connection, "scan", lambda *args, **kw: (next(calls), scan(*args, **kw))[1]
    )
    assert store.permitted(filters) is first
    assert next(calls) == 0
    store.upsert(batch(passage_row("later", key="a")))
    assert store.permitted(filters) == first | {"later"}
    store.delete_passages(["later"])
    assert store.permitted(filters) == first


def test_no_filters_permit_everything(store):
    assert len(store.permitted(MetadataFilters(filters=[]))) == len(METADATA)


def test_documents_can_be_filtered_by(store):
    expected = {f"p{n:02d}" for n in range(len(METADATA)) if n % 4 and n % 3 == 1}
    assert filters_expression(only("doc_id", "==", "d1")) == '(((doc_id == "d1")))'
    assert store.permitted(only("doc_id", "==", "d1")) == expected
    assert store.permitted(only("ref_doc_id", "in", ["d1"])) == expected


@pytest.mark.parametrize("id", ODD_IDS)
def test_ids_are_quoted(id):
    # A literal ends at the first quote that no backslash escapes.
    body = quote(id)[1:-1]
    unescaped = body.replace("\\\\", "").replace('\\"', "")
    assert '"' not in unescaped
    assert "\n" not in body
    assert ids_expression([id, "b"]) == f'id in ["{body}", "b"]'
