"""The compliance suite of GraphReader: subclass it to test a store of your own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from llama_index_graph_rag.errors import MissingExtraError
from llama_index_graph_rag.stores.base import EntityRef, GraphReader, Path
from llama_index_graph_rag.testing import toy_graphs
from llama_index_graph_rag.testing.toy_graphs import TOY_GRAPHS, ToyGraph

try:
    import pytest
except ImportError as error:
    raise MissingExtraError("pytest", "test") from error

LoadGraph = Callable[[ToyGraph], GraphReader]

UNKNOWN = "no such entity"

every_graph = pytest.mark.parametrize("toy", TOY_GRAPHS, ids=lambda toy: toy.name)


class GraphReaderSuite:
    """Tests that hold for every GraphReader.

    Give the fixture `load_graph`: a function that puts a toy graph into an empty store and
    returns the store's reader. Collect the subclass with pytest (and pytest-asyncio).

    Examples
    --------
    ::

        class TestMyStore(GraphReaderSuite):
            @pytest.fixture
            def load_graph(self, tmp_path):
                return lambda toy: my_reader(tmp_path, toy.triplets)
    """

    @pytest.fixture
    def load_graph(self) -> LoadGraph:
        """Return a function that loads a toy graph into a store and returns its reader."""
        raise NotImplementedError("override the fixture load_graph")

    # --- match_entities ---

    @every_graph
    def test_match_finds_every_entity_by_name_and_by_id(
        self, load_graph: LoadGraph, toy: ToyGraph
    ) -> None:
        """Each name finds its entity, and so does the id found by it."""
        reader = load_graph(toy)
        refs = [found[0] for found in reader.match_entities(toy.entities)]
        assert [ref.name for ref in refs] == list(toy.entities)
        assert len({ref.id for ref in refs}) == len(refs)
        by_id = reader.match_entities([ref.id for ref in refs])
        assert all(ref in found for ref, found in zip(refs, by_id))

    def test_match_answers_name_by_name(self, load_graph: LoadGraph) -> None:
        """Unknown and repeated names have a place in the answer; no name is no error."""
        reader = load_graph(toy_graphs.ONE_EDGE)
        found = reader.match_entities([UNKNOWN, "Euler", "", "Euler"])
        assert [[ref.name for ref in refs] for refs in found] == [[], ["Euler"], [], ["Euler"]]
        assert reader.match_entities([]) == []

    def test_match_keeps_to_its_limit(self, load_graph: LoadGraph) -> None:
        """No name has more than `limit` entities."""
        reader = load_graph(toy_graphs.HUB)
        assert [len(refs) for refs in reader.match_entities(["hub", "spoke 001"], limit=1)] == [
            1,
            1,
        ]

    # --- neighbors ---

    @every_graph
    def test_neighbors_are_those_of_the_triplets(
        self, load_graph: LoadGraph, toy: ToyGraph
    ) -> None:
        """Both directions, counted, never the entity itself, best linked first, then by name."""
        reader = load_graph(toy)
        ids = _ids(reader, toy)
        around = reader.neighbors(list(ids.values()), limit_per_entity=1000)
        for name in toy.entities:
            found = [(n.entity.name, n.count) for n in around.get(ids[name], [])]
            expected = sorted(_linked(toy)[name].items(), key=lambda item: (-item[1], item[0]))
            assert found == expected, name
            assert [n.entity.id for n in around.get(ids[name], [])] == [ids[n] for n, _ in found]

    def test_neighbors_are_cut_after_the_best(self, load_graph: LoadGraph) -> None:
        """The limit holds for each entity and keeps the head of the whole list."""
        reader = load_graph(toy_graphs.HUB)
        ids = _ids(reader, toy_graphs.HUB)
        asked = [ids["hub"], ids["spoke 001"]]
        around = reader.neighbors(asked, limit_per_entity=3)
        whole = reader.neighbors(asked, limit_per_entity=1000)
        assert around == {id: list(found[:3]) for id, found in whole.items()}
        names = [n.entity.name for n in around[ids["hub"]]]
        assert names == ["spoke 077", "spoke 000", "spoke 001"]

    def test_neighbors_leave_unknown_ids_out(self, load_graph: LoadGraph) -> None:
        """An id that is not there is not an error."""
        reader = load_graph(toy_graphs.ONE_EDGE)
        euler = _ids(reader, toy_graphs.ONE_EDGE)["Euler"]
        assert list(reader.neighbors([UNKNOWN, euler, euler])) == [euler]
        assert reader.neighbors([]) == {}

    # --- links ---

    @every_graph
    def test_links_are_those_of_the_triplets(self, load_graph: LoadGraph, toy: ToyGraph) -> None:
        """All pairs of two sides that are joined, either way, best linked first, then by ids."""
        reader = load_graph(toy)
        ids = _ids(reader, toy)
        sides = toy.entities[: len(toy.entities) // 2 + 1], toy.entities[len(toy.entities) // 3 :]
        linked = _linked(toy)
        expected = [
            (ids[left], ids[right], linked[left][right])
            for left in sides[0]
            for right in sides[1]
            if left != right and linked[left][right]
        ]
        found = reader.links([ids[name] for name in sides[0]], [ids[name] for name in sides[1]])
        triples = [(link.left_id, link.right_id, link.count) for link in found]
        assert sorted(triples) == sorted(expected)
        assert triples == sorted(triples, key=lambda link: (-link[2], link[0], link[1]))

    def test_links_keep_to_their_limit(self, load_graph: LoadGraph) -> None:
        """The limit keeps the head; unknown ids and empty sides are not an error."""
        reader = load_graph(toy_graphs.HUB)
        ids = _ids(reader, toy_graphs.HUB)
        everything = list(ids.values())
        whole = reader.links([ids["hub"]], everything)
        assert len(whole) == 150
        assert whole[0].right_id == ids["spoke 077"]
        assert reader.links([ids["hub"]], everything, limit=5) == whole[:5]
        assert reader.links([UNKNOWN], everything) == []
        assert reader.links([], everything) == reader.links(everything, []) == []

    # --- facts ---

    @every_graph
    def test_facts_are_the_triplets(self, load_graph: LoadGraph, toy: ToyGraph) -> None:
        """Each triplet comes back with its direction and spelling, pairs in the order given."""
        reader = load_graph(toy)
        ids = _ids(reader, toy)
        pairs = list(dict.fromkeys((t.subject, t.object) for t in toy.triplets))
        found = reader.facts([(ids[s], ids[o]) for s, o in pairs], per_pair=1000)
        triples = [(fact.subject.name, fact.predicate, fact.object.name) for fact in found]
        expected = [
            [tuple(t) for t in toy.triplets if {t.subject, t.object} == {*pair}] for pair in pairs
        ]
        start = 0
        for group in expected:
            part = triples[start : start + len(group)]
            assert sorted(part) == sorted(group)
            start += len(group)
        assert start == len(triples)
        assert all(ids[fact.subject.name] == fact.subject.id for fact in found)
        assert all(fact.count >= 1 for fact in found)

    def test_facts_answer_either_order_of_a_pair(self, load_graph: LoadGraph) -> None:
        """A pair is a pair whichever comes first; its facts are in one order."""
        reader = load_graph(toy_graphs.BOTH_DIRECTIONS)
        ids = _ids(reader, toy_graphs.BOTH_DIRECTIONS)
        found = reader.facts([(ids["B"], ids["A"])])
        assert found == reader.facts([(ids["A"], ids["B"])])
        assert {(fact.subject.name, fact.predicate) for fact in found} == {
            ("A", "writes to"),
            ("B", "answers"),
        }

    def test_facts_are_ordered_by_count_then_predicate(self, load_graph: LoadGraph) -> None:
        """The order is total, and the limit of each pair keeps its head."""
        reader = load_graph(toy_graphs.PARALLEL)
        ids = _ids(reader, toy_graphs.PARALLEL)
        pairs = [(ids["A"], ids["C"]), (ids["A"], ids["B"])]
        found = reader.facts(pairs)
        assert [fact.predicate for fact in found] == ["knows", "advises", "employs", "zitiert"]
        short = reader.facts(pairs, per_pair=2)
        assert [fact.predicate for fact in short] == ["knows", "advises", "employs"]

    def test_facts_of_nothing_are_none(self, load_graph: LoadGraph) -> None:
        """Unknown ids, pairs that are not joined and no pairs are not an error."""
        reader = load_graph(toy_graphs.DISCONNECTED)
        ids = _ids(reader, toy_graphs.DISCONNECTED)
        assert reader.facts([(ids["A"], ids["X"]), (UNKNOWN, ids["A"])]) == []
        assert reader.facts([]) == []

    # --- paths ---

    @pytest.mark.parametrize(
        # A store may follow only the best linked neighbours of a hub.
        "toy",
        [toy for toy in TOY_GRAPHS if toy is not toy_graphs.HUB],
        ids=lambda toy: toy.name,
    )
    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_paths_are_the_simple_walks(
        self, load_graph: LoadGraph, toy: ToyGraph, depth: int
    ) -> None:
        """All walks that visit no entity twice, shorter ones first."""
        reader = load_graph(toy)
        ids = _ids(reader, toy)
        starts = toy.entities[:2]
        found = reader.paths([ids[name] for name in starts], max_depth=depth, limit=10_000)
        assert sorted(_written(path) for path in found) == sorted(_walks(toy, starts, depth))
        lengths = [len(path.edges) for path in found]
        assert lengths == sorted(lengths)

    def test_paths_go_by_best_link_and_keep_to_the_limit(self, load_graph: LoadGraph) -> None:
        """Of one length the best linked come first; a hub fills no more than the limit."""
        reader = load_graph(toy_graphs.HUB)
        ids = _ids(reader, toy_graphs.HUB)
        found = reader.paths([ids["hub"]], max_depth=2, limit=4)
        assert len(found) == 4
        assert {path.entities[1].name for path in found[:2]} == {"spoke 077"}
        assert reader.paths([UNKNOWN]) == reader.paths([]) == []

    def test_paths_of_labels_have_no_others(self, load_graph: LoadGraph) -> None:
        """Labels keep only edges of these predicates, on every step."""
        reader = load_graph(toy_graphs.PARALLEL)
        ids = _ids(reader, toy_graphs.PARALLEL)
        found = reader.paths([ids["B"]], max_depth=2, labels=["employs", "knows"])
        assert [_written(path) for path in found] == [
            ("B", ("employs", False), "A"),
            ("B", ("employs", False), "A", ("knows", True), "C"),
        ]
        assert reader.paths([ids["B"]], labels=["no such label"]) == []

    # --- schema, determinism, async ---

    @every_graph
    def test_schema_is_a_text(self, load_graph: LoadGraph, toy: ToyGraph) -> None:
        """There is always something to tell."""
        assert load_graph(toy).schema().strip()

    @every_graph
    async def test_async_twins_and_second_calls_answer_alike(
        self, load_graph: LoadGraph, toy: ToyGraph
    ) -> None:
        """Every answer is the same again, sync or async, down to its order."""
        reader = load_graph(toy)
        found = await reader.amatch_entities(toy.entities)
        assert found == reader.match_entities(toy.entities) == reader.match_entities(toy.entities)
        ids = [refs[0].id for refs in found]
        pairs = [(left, right) for left in ids[:5] for right in ids[:5]]
        assert (
            await reader.aneighbors(ids, limit_per_entity=7)
            == reader.neighbors(ids, limit_per_entity=7)
            == reader.neighbors(ids, limit_per_entity=7)
        )
        assert await reader.alinks(ids, ids) == reader.links(ids, ids) == reader.links(ids, ids)
        assert await reader.afacts(pairs) == reader.facts(pairs) == reader.facts(pairs)
        assert (
            await reader.apaths(ids[:3], limit=9)
            == reader.paths(ids[:3], limit=9)
            == reader.paths(ids[:3], limit=9)
        )
        assert await reader.aschema() == reader.schema()


Written = tuple[str | tuple[str, bool], ...]


def _ids(reader: GraphReader, toy: ToyGraph) -> dict[str, str]:
    def named(name: str, refs: Sequence[EntityRef]) -> str:
        return next(ref.id for ref in refs if ref.name == name)

    return {n: named(n, refs) for n, refs in zip(toy.entities, reader.match_entities(toy.entities))}


def _linked(toy: ToyGraph) -> dict[str, Counter[str]]:
    linked: dict[str, Counter[str]] = {name: Counter() for name in toy.entities}
    for triplet in toy.triplets:
        if triplet.subject != triplet.object:
            linked[triplet.subject][triplet.object] += 1
            linked[triplet.object][triplet.subject] += 1
    return linked


def _written(path: Path) -> Written:
    steps: list[str | tuple[str, bool]] = [path.entities[0].name]
    for edge, entity in zip(path.edges, path.entities[1:]):
        steps += [(edge.predicate, edge.forward), entity.name]
    return tuple(steps)


def _walks(toy: ToyGraph, starts: Sequence[str], depth: int) -> Iterator[Written]:
    walks: list[Written] = [(name,) for name in starts]
    for _ in range(depth):
        walks = [
            (*walk, (triplet.predicate, forward), after)
            for walk in walks
            for triplet in toy.triplets
            for before, after, forward in (
                (triplet.subject, triplet.object, True),
                (triplet.object, triplet.subject, False),
            )
            if walk[-1] == before and after not in walk
        ]
        yield from walks
