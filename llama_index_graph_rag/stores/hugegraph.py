"""A graph in HugeGraph, walked by Gremlin over REST."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llama_index_graph_rag.stores.base import EntityRef, Fact, GraphReader, Link, Neighbor, Path
from llama_index_graph_rag.stores.gremlin import GremlinClient
from llama_index_graph_rag.stores.hugegraph_queries import HugeGraphQueries


class HugeGraphStore(GraphReader):
    """Reads a graph that lives in HugeGraph 1.3 to 1.7, and can load triplets into it.

    Every value travels as a binding and every label is looked up in the graph's schema first, so
    no text from a question or an LLM becomes part of a query.

    Parameters
    ----------
    url
        Address of the REST server. Default ``http://127.0.0.1:8080``.
    graph, graphspace
        Which graph. Defaults ``hugegraph`` and ``DEFAULT``.
    username, password
        HTTP Basic authentication, if the server asks for it.
    match_property
        Property by which names are matched to vertices. None, the default, matches by vertex id:
        a custom id, or an id made from a primary key (``marko`` finds ``1:marko``).
    name_property
        Property that is shown as a vertex's name, default ``name``; a vertex without it is shown
        by its id.
    predicate_property
        Edge property that is shown as the predicate in place of the edge label, where an edge has
        it. Default ``predicate``, which `add_triplets` writes.
    create_index
        Create the secondary index that a match by property needs, if it is missing. Default
        False: a missing index is an error that says so.
    timeout, retries, backoff
        See `GremlinClient`.

    Raises
    ------
    GraphRAGValueError
        If an argument cannot be used.
    MissingExtraError
        If httpx is not installed.

    Notes
    -----
    Names are matched exactly, or by canonical name for vertices that `add_triplets` wrote.
    Where `neighbors` cuts, ties are broken by id: the server cannot sort by a name that a vertex
    may lack. `paths` asks once for each length, and stops when it has enough.

    Examples
    --------
    >>> store = HugeGraphStore("http://127.0.0.1:8080", username="admin", password="secret")
    >>> store
    HugeGraphStore(url='http://127.0.0.1:8080', graph='hugegraph')
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        graph: str = "hugegraph",
        graphspace: str = "DEFAULT",
        username: str | None = None,
        password: str | None = None,
        match_property: str | None = None,
        name_property: str = "name",
        predicate_property: str | None = "predicate",
        create_index: bool = False,
        timeout: float = 30.0,
        retries: int = 2,
        backoff: float = 0.2,
    ) -> None:
        self.client = GremlinClient(
            url,
            graph=graph,
            graphspace=graphspace,
            username=username,
            password=password,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
        )
        self._queries = HugeGraphQueries(
            match_property, name_property, predicate_property, create_index, timeout
        )

    def __repr__(self) -> str:
        return f"HugeGraphStore(url={self.client.url!r}, graph={self.client.graph!r})"

    def match_entities(
        self, names: Sequence[str], *, by: str | None = None, limit: int = 5
    ) -> list[list[EntityRef]]:
        """Return, per name, at most `limit` vertices: by id, or by the property `by`.

        Raises
        ------
        GraphRAGValueError
            If no vertex label has the property.
        StoreError
            If the property has no index and `create_index` is off, or the server fails.
        """
        return self.client.run(self._queries.match(names, by, limit))

    async def amatch_entities(
        self, names: Sequence[str], *, by: str | None = None, limit: int = 5
    ) -> list[list[EntityRef]]:
        """Async twin of `match_entities`."""
        return await self.client.arun(self._queries.match(names, by, limit))

    def neighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Return each entity's neighbours in both directions, best linked first, then by name."""
        return self.client.run(self._queries.neighbors(entity_ids, limit_per_entity))

    async def aneighbors(
        self, entity_ids: Sequence[str], *, limit_per_entity: int = 100
    ) -> dict[str, list[Neighbor]]:
        """Async twin of `neighbors`."""
        return await self.client.arun(self._queries.neighbors(entity_ids, limit_per_entity))

    def links(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Return the pairs joined directly, in either direction, best linked first."""
        return self.client.run(self._queries.links(left_ids, right_ids, limit))

    async def alinks(
        self, left_ids: Sequence[str], right_ids: Sequence[str], *, limit: int = 10_000
    ) -> list[Link]:
        """Async twin of `links`."""
        return await self.client.arun(self._queries.links(left_ids, right_ids, limit))

    def facts(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        per_pair: int = 5,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Fact]:
        """Return the edges that join each pair; HugeGraph holds no embeddings, so by predicate."""
        return self.client.run(self._queries.facts(pairs, per_pair))

    async def afacts(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        per_pair: int = 5,
        query_embedding: Sequence[float] | None = None,
    ) -> list[Fact]:
        """Async twin of `facts`."""
        return await self.client.arun(self._queries.facts(pairs, per_pair))

    def paths(
        self,
        entity_ids: Sequence[str],
        *,
        max_depth: int = 2,
        limit: int = 30,
        labels: Sequence[str] | None = None,
    ) -> list[Path]:
        """Return at most `limit` simple paths from the entities, shorter ones first.

        Among paths of one length the entities take turns, so that none crowds out the others.

        A label is an edge label or, in graphs of `add_triplets`, a predicate; one that the graph
        does not have matches nothing and is logged.
        """
        return self.client.run(self._queries.paths(entity_ids, max_depth, limit, labels))

    async def apaths(
        self,
        entity_ids: Sequence[str],
        *,
        max_depth: int = 2,
        limit: int = 30,
        labels: Sequence[str] | None = None,
    ) -> list[Path]:
        """Async twin of `paths`."""
        return await self.client.arun(self._queries.paths(entity_ids, max_depth, limit, labels))

    def schema(self) -> str:
        """Return labels, properties and relations as a text for an LLM, read anew."""
        return self.client.run(self._queries.read_schema(fresh=True)).text()

    async def aschema(self) -> str:
        """Async twin of `schema`."""
        return (await self.client.arun(self._queries.read_schema(fresh=True))).text()

    def create_index(self, property_name: str) -> None:
        """Create the secondary indexes that a match by this property needs, and wait for them.

        Raises
        ------
        GraphRAGValueError
            If no vertex label has the property.
        StoreError
            If the server refuses or does not finish in time.
        """
        self.client.run(self._queries.index(property_name))

    async def acreate_index(self, property_name: str) -> None:
        """Async twin of `create_index`."""
        await self.client.arun(self._queries.index(property_name))

    def add_triplets(
        self,
        triplets: Iterable[Sequence[str]],
        *,
        vertex_label: str = "entity",
        edge_label: str = "relation",
    ) -> int:
        """Load triplets and return how many distinct ones there were.

        The two labels are created if they are missing. An entity becomes a vertex whose id is its
        canonical name, with the spelling first written as ``name``; a triplet becomes an edge
        with its ``predicate``. Writing again changes nothing.

        Raises
        ------
        GraphRAGTypeError, GraphRAGValueError
            If a triplet cannot be used; nothing is written then.
        StoreError
            If a label exists with another layout, or the server fails; call again to go on.
        """
        return self.client.run(self._queries.load(triplets, vertex_label, edge_label))

    async def aadd_triplets(
        self,
        triplets: Iterable[Sequence[str]],
        *,
        vertex_label: str = "entity",
        edge_label: str = "relation",
    ) -> int:
        """Async twin of `add_triplets`."""
        return await self.client.arun(self._queries.load(triplets, vertex_label, edge_label))
