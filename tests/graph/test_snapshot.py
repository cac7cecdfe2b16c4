from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_graph_rag.errors import GraphRAGValueError
from llama_index_graph_rag.graph import snapshot as module
from llama_index_graph_rag.graph.snapshot import (
    EntityKey,
    GraphSnapshot,
    PassageKey,
    RelationKey,
)
from llama_index_graph_rag.identity import entity_id
from llama_index_graph_rag.triplets import Triplet

AB, BC, CA, AA = (Triplet(*t) for t in ("AkB", "BkC", "CkA", "AkA"))


def keys(passages: dict[str, tuple[str, list[Triplet]]]) -> dict[str, list]:
    """The arguments of with_changes that put these passages: id to (document, triplets)."""
    triplets = [t for _, stated in passages.values() for t in stated]
    return {
        "entities": [
            EntityKey(entity_id(name), name) for t in triplets for name in (t.subject, t.object)
        ],
        "relations": [RelationKey(t.id, t.subject_id, t.object_id) for t in triplets],
        "passages": [
            PassageKey(id, doc, tuple(t.id for t in stated), f"c-{id}-{len(stated)}", f"d-{doc}")
            for id, (doc, stated) in passages.items()
        ],
    }


def make(passages: dict[str, tuple[str, list[Triplet]]]) -> GraphSnapshot:
    return GraphSnapshot.empty().with_changes(**keys(passages))


def facts(graph: GraphSnapshot) -> dict[str, object]:
    """All that is observable by id."""
    passages = {
        id: set(graph.relation_ids(graph.incidence.relations_of_passages([row])[1]))
        for row, id in enumerate(graph.passage_ids(range(graph.n_passages)))
        if graph.passage_rows([id])[0] == row
    }
    entities = {
        id: set(graph.relation_ids(graph.incidence.relations_of_entities([row])[1]))
        for row, id in enumerate(graph.entity_ids(range(graph.n_entities)))
    }
    return {
        "passages": passages,
        "entities": {id: held for id, held in entities.items() if held},
        "names": dict(zip(graph.entity_ids(range(graph.n_entities)), graph.entity_names)),
        "hashes": {id: graph.content_hash(id) for id in passages},
        "documents": {
            doc: (graph.passages_of_document(doc), graph.document_hash(doc))
            for doc in graph.ref_doc_ids(graph.passage_rows(list(passages)))
        },
        "stats": graph.stats(),
    }


names = st.sampled_from("ABCDE")
stated = st.lists(st.builds(Triplet, names, st.just("k"), names), max_size=4)
puts = st.dictionaries(
    st.sampled_from(["p1", "p2", "p'3", "p\n4", "五"]),
    st.tuples(st.sampled_from(["d1", "d2", ""]), stated),
    max_size=3,
)
steps = st.lists(st.tuples(puts, st.sets(st.sampled_from(["p1", "p2", "五"]))), max_size=6)


@settings(max_examples=80, deadline=None)
@given(steps, st.sampled_from([0, 3, 10**6]), st.booleans())
def test_any_history_is_its_final_state(tmp_path_factory, history, merge_least, on_disk):
    model: dict[str, tuple[str, list[Triplet]]] = {}
    graph = GraphSnapshot.empty()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGE_LEAST", merge_least)
        for put, removed in history:
            before, seen = graph, facts(graph)
            graph = graph.with_changes(**keys(put), removed_passages=removed)
            model = {id: value for id, value in model.items() if id not in removed} | put
            assert facts(before) == seen
        if on_disk:
            folder = tmp_path_factory.mktemp("cache")
            graph.save(folder)
            loaded = GraphSnapshot.load(folder)
            assert facts(loaded) == facts(graph)
            graph = loaded
    got, want = facts(graph), facts(make(model))
    for part in ("passages", "entities", "hashes", "documents"):
        assert got[part] == want[part]
    for part in ("passages", "entities", "relations"):
        assert got["stats"][part] == want["stats"][part]
    swept = graph.with_changes(
        removed_relations=graph.orphan_relations(), removed_entities=graph.orphan_entities()
    )
    assert facts(swept) == want


def test_order_of_insertion_does_not_show():
    corpus = {f"p{n}": ("d", [Triplet(f"e{n}", "k", f"e{n * 7 % 10}")]) for n in range(10)}
    forward = make(corpus)
    backward = GraphSnapshot.empty()
    for id in reversed(corpus):
        backward = backward.with_changes(**keys({id: corpus[id]}))
    for graph in (forward, backward):
        assert len(graph.relations.tail) == 10
    for kind in ("entity", "relation", "passage"):
        orders = []
        for graph in (forward, backward, backward.merged()):
            ids = getattr(graph, f"{kind}_ids")(range(10))
            orders.append([ids[row] for row in np.argsort(getattr(graph, f"{kind}_ranks"))])
        assert orders[0] == orders[1] == orders[2]
    found = [
        graph.relation_ids(
            graph.incidence.expand(
                entities=range(graph.n_entities), degree=0, max_relations=4
            ).relations
        )
        for graph in (forward, backward, backward.merged())
    ]
    assert found[0] == found[1] == found[2] == sorted(t.id for _, (t,) in corpus.values())[:4]


def test_ids_and_rows_are_inverse_and_unknown_ids_are_minus_one():
    graph = make({"p": ("d", [AB, BC])}).merged()
    for kind, n in (("entity", 3), ("relation", 2), ("passage", 1)):
        ids = getattr(graph, f"{kind}_ids")(range(n))
        rows = getattr(graph, f"{kind}_rows")
        assert rows(ids).tolist() == list(range(n))
        assert rows(ids).dtype == np.int32
        odd = ["", "x", "0" * 32, "é" * 32, ids[0].upper() + "!", " " + ids[0][1:], ids[0]]
        assert rows(odd).tolist() == [-1] * 6 + [0]
        assert rows([]).tolist() == []
    assert graph.entity_names[graph.entity_rows([entity_id("b")])[0]] == "B"


def test_the_first_spelling_stays():
    graph = make({"p": ("d", [Triplet("Euler", "k", "X")])})
    graph = graph.with_changes(**keys({"q": ("d", [Triplet("EULER", "k", "X")])}))
    assert graph.entity_names[graph.entity_rows([entity_id("euler")])[0]] == "Euler"
    assert graph.n_relations == 1


def test_a_relation_without_passages_is_invisible_until_it_is_held_again():
    graph = make({"p": ("d", [AB]), "q": ("d", [BC])}).with_changes(removed_passages=["p"])
    (b,) = graph.entity_rows([entity_id("B")])
    (ab,) = graph.relation_rows([AB.id])
    incidence = graph.incidence
    assert incidence.expand(entities=[b], relations=[ab], degree=3).relations.tolist() == [
        graph.relation_rows([BC.id])[0]
    ]
    assert incidence.entity_relation_matrix[:, [ab]].nnz == 0
    assert graph.stats() == {
        "passages": 1,
        "entities": 2,
        "relations": 1,
        "orphan_entities": 1,
        "orphan_relations": 1,
        "dangling_references": 0,
    }
    assert graph.orphan_relations() == [AB.id]
    assert graph.orphan_entities() == [entity_id("A")]
    again = graph.with_changes(**keys({"r": ("d", [AB])}))
    assert again.stats()["orphan_relations"] == 0
    assert len(again.incidence.expand(entities=[b], degree=1).relations) == 2


def test_an_upserted_passage_replaces_its_relations_and_document():
    graph = make({"p": ("d", [AB, BC])}).with_changes(**keys({"p": ("other", [CA])}))
    rows = graph.passage_rows(["p"])
    assert graph.relation_ids(graph.incidence.relations_of_passages(rows)[1]) == [CA.id]
    assert graph.passages_of_document("d") == []
    assert graph.document_hash("d") is None
    assert graph.passages_of_document("other") == ["p"]
    assert graph.document_hash("other") == "d-other"
    assert graph.content_hash("p") == "c-p-1"
    assert graph.content_hash("q") is None


def test_removing_and_putting_in_one_call_leaves_the_passage():
    graph = make({"p": ("d", [AB])})
    graph = graph.with_changes(**keys({"p": ("d", [BC])}), removed_passages=["p", "unknown"])
    assert graph.stats()["relations"] == 1


def test_an_entity_takes_its_relations_along():
    graph = make({"p": ("d", [AB, BC, AA])}).with_changes(removed_entities=[entity_id("A")])
    assert graph.relation_ids(range(graph.n_relations)) == [BC.id]
    assert graph.stats()["orphan_entities"] == 0


def test_dangling_references_are_counted_and_said(caplog):
    with caplog.at_level(logging.WARNING, logger="llama_index_graph_rag"):
        graph = GraphSnapshot.empty().with_changes(
            relations=[RelationKey(AB.id, AB.subject_id, AB.object_id)],
            passages=[PassageKey("p", "d", (AB.id,), "", "")],
        )
    assert graph.stats()["dangling_references"] == 2
    assert "repair" in caplog.text
    assert graph.passage_rows(["p"])[0] == 0


def test_an_id_that_is_none_is_refused():
    with pytest.raises(GraphRAGValueError, match="'x' is not the id of an entity"):
        GraphSnapshot.empty().with_changes(entities=[EntityKey("x", "X")])


def test_odd_passage_ids_keep_apart():
    ids = ["", " ", "a", "a\x00", "a\n", "'", '"', "\\", "é", "é", "x" * 512, "\ud800"]
    graph = make({id: (id, [AB]) for id in ids}).merged()
    assert sorted(graph.passage_ids(graph.passage_rows(ids))) == sorted(ids)
    assert [graph.passages_of_document(id) for id in ids] == [[id] for id in ids]


# --- on disk ---


def test_another_version_is_not_loaded(tmp_path):
    graph = make({"p": ("d", [AB])})
    assert GraphSnapshot.load(tmp_path / "none") is None
    graph.save(tmp_path / "new", version="7")
    assert GraphSnapshot.load(tmp_path / "new", version="8") is None
    for version in ("7", None):
        assert facts(GraphSnapshot.load(tmp_path / "new", version=version)) == facts(graph)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["graph-snapshot.npz"]


def test_a_damaged_file_is_never_a_wrong_graph(tmp_path, caplog):
    make({f"p{n}": ("d", [AB, BC]) for n in range(50)}).save(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    want = facts(GraphSnapshot.load(tmp_path))
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        graph = GraphSnapshot.load(tmp_path)
        assert graph is None or facts(graph) == want
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert GraphSnapshot.load(tmp_path) is None
    assert "damaged" in caplog.text


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    make({"p": ("d", [AB])}).save(tmp_path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        make({"q": ("d", [BC])}).save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert GraphSnapshot.load(tmp_path).passage_rows(["p"])[0] == 0


def test_readers_in_threads_agree():
    graph = make({f"p{n}": ("d", [Triplet(f"e{n % 50}", "k", "hub")]) for n in range(500)})
    results = []

    def read():
        results.append(facts(graph))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == results[0] for result in results)
    assert len(results) == 4


def test_a_snapshot_is_a_key_for_caches():
    graph = GraphSnapshot.empty()
    assert graph == graph
    assert graph != GraphSnapshot.empty()
    assert {graph: 1}[graph] == 1
