"""Progress bars, of the kind that suits where they are shown."""

from __future__ import annotations

from typing import NoReturn

from tqdm import tqdm


def progress_bar(total: int, what: str, *, show: bool) -> tqdm[NoReturn]:
    """Return a bar for `total` steps of `what`, which shows nothing unless `show`."""
    if not show:
        return tqdm(total=total, desc=what, disable=True)
    # At use alone: in a notebook without ipywidgets its import warns.
    from tqdm.auto import tqdm as shown

    return shown(total=total, desc=what)
