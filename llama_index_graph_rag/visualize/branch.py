"""A tree of lines: what an explanation says, before it is printed or put on a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.tree import Tree

WIDTH = 100
"""Letters after which a printed line is continued on the next."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A line and what belongs to it.

    Examples
    --------
    >>> print(Branch("Euler", (Branch("taught by", (Branch("Bernoulli"),)), Branch("in Basel"))))
    Euler
    ├─ taught by
    │  └─ Bernoulli
    └─ in Basel
    """

    text: str
    branches: tuple[Branch, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        wrapped = wrap(_flat(self.text), WIDTH) or [""]
        yield wrapped[0]
        yield from (f"{'│ ' if self.branches else ''}{line}" for line in wrapped[1:])
        for place, branch in enumerate(self.branches):
            last = place == len(self.branches) - 1
            head, *below = branch._lines()
            yield f"{'└' if last else '├'}─ {head}"
            yield from (f"{' ' if last else '│'}  {line}" for line in below)

    def __rich__(self) -> Tree:
        """Return the tree that rich prints."""
        from rich.text import Text
        from rich.tree import Tree

        tree = Tree(Text(_flat(self.text), style="bold" if self.branches else ""))
        for branch in self.branches:
            tree.children.append(branch.__rich__())
        return tree


def branch(text: str, lines: Iterable[str | Branch]) -> Branch:
    """Return a branch with lines below it."""
    return Branch(text, tuple(Branch(line) if isinstance(line, str) else line for line in lines))


def first(lines: Sequence[str], limit: int) -> list[str]:
    """Return the first lines, and one that says how many more there are.

    Examples
    --------
    >>> first(["a", "b", "c"], 1)
    ['a', '... and 2 more']
    """
    more = len(lines) - limit
    return [*lines[:limit], f"... and {more} more"] if more > 0 else list(lines)


def _flat(text: str) -> str:
    return " ".join(text.split())
