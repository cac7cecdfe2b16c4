"""A tree of lines: what an explanation says, before it is printed or put on a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.tree import Tree

LINE = 110
"""Characters of a line that is printed; the page shows all of them."""


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
        return "\n".join([_short(self.text), *self._lines()])

    def _lines(self) -> Iterator[str]:
        for place, branch in enumerate(self.branches):
            last = place == len(self.branches) - 1
            yield f"{'└' if last else '├'}─ {_short(branch.text)}"
            yield from (f"{' ' if last else '│'}  {line}" for line in branch._lines())

    def __rich__(self) -> Tree:
        """Return the tree that rich prints."""
        from rich.text import Text
        from rich.tree import Tree

        tree = Tree(Text(_short(self.text), style="bold" if self.branches else ""))
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


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE else f"{line[: LINE - 3]}..."
