"""Run the notebooks from top to bottom and store their outputs: ``python notebooks/execute.py``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path, cwd: Path) -> nbformat.NotebookNode:
    """Return a notebook as it is after a run in a fresh kernel without a key, started in `cwd`.

    The kernel imports the package from this checkout. What a reader does not look at and what
    differs from run to run, such as times and versions, is left out.
    """
    notebook = nbformat.read(path, as_version=4)
    paths = [str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    env.pop("OPENAI_API_KEY", None)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", record_timing=False, coalesce_streams=True
    )
    client.execute(env=env, cwd=str(cwd))
    notebook.metadata = nbformat.from_dict(METADATA)
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place}"
        cell.metadata = nbformat.from_dict({})
    return notebook


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or sorted(FOLDER.glob("*.ipynb"))):
        nbformat.write(execute(path, cwd=FOLDER), path)
