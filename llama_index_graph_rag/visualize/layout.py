"""Where the entities of a picture stand: distances in the graph become distances on the page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, shortest_path

Floats = NDArray[np.float64]

GAP = 60.0
"""Pixels between parts of the graph that nothing connects."""
ROW = 40.0
"""Pixels that an entity takes from top to bottom: its mark, its label and some air."""
AIR = 2.0
"""How much larger than its labels together a part of the graph is made."""
WIDE = 1.3
"""How much wider than high a picture is made: screens are, and so are labels."""


def layout(
    widths: Sequence[float],
    edges: Sequence[tuple[int, int]],
    lengths: Sequence[float],
    *,
    n_steps: int = 120,
) -> Floats:
    """Return a place for each of n entities.

    Each connected part is laid out by stress majorization, then labels that overlap are pushed
    apart, and the parts are put side by side, the largest first.

    Parameters
    ----------
    widths
        Pixels that each entity's label takes, n numbers.
    edges
        Pairs of entities, by their places in `widths`.
    lengths
        Pixels that each edge should be long.
    n_steps
        Steps of the majorization.

    Returns
    -------
    ndarray
        Shape (n, 2), in pixels, from (0, 0) to the right and down; the same for the same input.

    Notes
    -----
    Gansner, Koren and North, *Graph Drawing by Stress Majorization* (2004);
    n entities take O(n^2) a step.

    Examples
    --------
    >>> places = layout([10, 10, 10], [(0, 1)], [100])
    >>> round(float(np.hypot(*(places[0] - places[1]))))
    100
    """
    n = len(widths)
    places = np.zeros((n, 2))
    if not n:
        return places
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    apart = ends[:, 0] != ends[:, 1]
    ends, wanted = ends[apart], np.asarray(lengths, dtype=np.float64)[apart]
    # Of several edges between two entities the longest counts: all have to find room.
    longest: dict[tuple[int, int], float] = {}
    for (a, b), length in zip(np.sort(ends).tolist(), wanted.tolist()):
        longest[a, b] = max(longest.get((a, b), 0.0), length)
    pairs = np.array(list(longest), dtype=np.int32).reshape(-1, 2)
    graph = sp.csr_array((list(longest.values()), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, part_of = connected_components(graph, directed=False)
    boxes = np.column_stack([np.asarray(widths, dtype=np.float64), np.full(n, ROW)])
    parts = [np.flatnonzero(part_of == part) for part in range(part_of.max() + 1)]
    parts.sort(key=lambda members: (-len(members), members[0]))
    distances: Floats = shortest_path(graph, directed=False)
    for members in parts:
        own = distances[np.ix_(members, members)]
        places[members] = _pushed_apart(_stress(own, n_steps), boxes[members])
    return _packed(places, boxes, parts)


def _stress(distances: Floats, n_steps: int) -> Floats:
    n = len(distances)
    places = _start(distances)
    if n == 1:
        return places
    weights = np.divide(1.0, distances**2, out=np.zeros_like(distances), where=distances > 0)
    # The step that lowers the stress most: solve L x = B(x) x, with L the weights' Laplacian.
    solve = np.linalg.inv(np.diag(weights.sum(axis=1)) - weights + 1.0 / n) - 1.0 / n
    pulls = weights * distances
    for _ in range(n_steps):
        x, y = places.T
        pull = pulls / np.maximum(np.hypot(x[:, None] - x, y[:, None] - y), 1e-9)
        places = solve @ (pull.sum(axis=1)[:, None] * places - pull @ places)
    return places


def _start(distances: Floats) -> Floats:
    """Classical scaling, turned so that the longest direction lies across the page."""
    n = len(distances)
    centred = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(-0.5 * centred @ distances**2 @ centred)
    best: Floats = vectors[:, -2:][:, ::-1] * np.sqrt(np.maximum(values[-2:][::-1], 0.0))
    if best.shape[1] < 2:
        return np.zeros((n, 2))
    # An eigenvector's sign is anyone's choice: the first entity stands to the left and above.
    best *= np.where(best[0] > 0, -1.0, 1.0)
    # Leaves of one entity would all start in one place.
    turn = np.arange(n) * np.pi * (3 - np.sqrt(5))
    jitter = np.column_stack([np.cos(turn), np.sin(turn)])
    jitter *= 0.05 * max(float(distances.max()), 1.0)
    start: Floats = best + jitter
    return start


def _pushed_apart(places: Floats, boxes: Floats, n_steps: int = 60) -> Floats:
    """Make room for all boxes, then move those that overlap, each half of the shorter way."""
    n = len(places)
    x, y = (places * [WIDE if n > 2 else 1.0, 1.0]).T
    room = (float(np.ptp(x)) + boxes[:, 0].mean()) * (float(np.ptp(y)) + ROW)
    grow = np.sqrt(max(1.0, AIR * float(boxes.prod(axis=1).sum()) / room))
    x, y = x * grow, y * grow
    room_x, room_y = ((boxes[:, None, axis] + boxes[None, :, axis]) / 2 for axis in (0, 1))
    # Two boxes in one place part by their order.
    order = np.sign(np.arange(n)[:, None] - np.arange(n)[None, :])
    for _ in range(n_steps):
        steps = x[:, None] - x[None, :], y[:, None] - y[None, :]
        over = room_x - np.abs(steps[0]), room_y - np.abs(steps[1])
        hit = np.asarray((over[0] > 0.5) & (over[1] > 0.5) & (order != 0))
        if not hit.any():
            break
        across = hit & (over[0] < over[1])
        moves = []
        for step, shared, chosen in zip(steps, over, (across, hit & ~across)):
            way = np.where(step == 0, order, np.sign(step))
            moves.append(np.clip((way * shared / 2 * chosen).sum(axis=1), -GAP, GAP))
        x, y = x + moves[0], y + moves[1]
    return np.column_stack([x, y])


def _packed(places: Floats, boxes: Floats, parts: Sequence[NDArray[np.intp]]) -> Floats:
    """Put parts in rows from left to right, as wide as a screen of their area asks."""
    lows = [(places[part] - boxes[part] / 2).min(axis=0) for part in parts]
    sizes = [(places[part] + boxes[part] / 2).max(axis=0) - low for part, low in zip(parts, lows)]
    area = sum(float((size + GAP).prod()) for size in sizes)
    # Rows are never quite full: a little wider than the area alone would ask.
    width = max(float(np.sqrt(area * WIDE) * 1.2), float(sizes[0][0]))
    packed: Floats = places.copy()
    x = y = row = 0.0
    for part, low, size in zip(parts, lows, sizes):
        if x and x + size[0] > width:
            x, y, row = 0.0, y + row + GAP, 0.0
        packed[part] += np.array([x, y]) - low
        x, row = x + float(size[0]) + GAP, max(row, float(size[1]))
    return packed
