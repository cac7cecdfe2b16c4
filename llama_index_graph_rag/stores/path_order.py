"""The order of paths that a store found by a query of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from llama_index_graph_rag.stores.base import Path

SCANNED_PATHS = 500
"""Paths of one length that a store looks at for each start, to find the best linked."""


def in_turns(paths: Iterable[Path], starts: Sequence[str], limit: int) -> list[Path]:
    """Return the first `limit` paths: shorter ones first, then best linked, then by names.

    Among paths of one length the starts take turns, so that a hub does not crowd out the others.
    How well a step is linked is counted from the paths given: parallel edges make parallel paths.

    Examples
    --------
    >>> from llama_index_graph_rag.stores.base import Edge, EntityRef
    >>> a, b, c = (EntityRef(name, name) for name in "abc")
    >>> twice = [Path((a, c), (Edge("knows", True),)), Path((a, c), (Edge("met", True),))]
    >>> once = Path((a, b), (Edge("knows", True),))
    >>> [path.entities[1].name for path in in_turns([once, *twice], ["a"], 2)]
    ['c', 'c']
    """
    found = list(dict.fromkeys(paths))
    linked = Counter(tuple(ref.id for ref in path.entities) for path in found)
    groups: dict[tuple[int, str], list[Path]] = {}
    for path in sorted(found, key=lambda path: _order(path, linked)):
        groups.setdefault((len(path.edges), path.entities[0].id), []).append(path)
    ordered: list[Path] = []
    for length in sorted({length for length, _ in groups}):
        columns = [groups.get((length, start), []) for start in dict.fromkeys(starts)]
        ordered.extend(path for turn in zip_longest(*columns) for path in turn if path is not None)
    return ordered[:limit]


def _order(path: Path, linked: Counter[tuple[str, ...]]) -> tuple[object, ...]:
    names = [ref.name for ref in path.entities[1:]]
    ids = tuple(ref.id for ref in path.entities)
    return -linked[ids], names, ids, [edge.predicate for edge in path.edges]
