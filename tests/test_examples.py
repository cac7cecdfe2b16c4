"""The examples of the docstrings run, and every public name has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import llama_index_graph_rag

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(
        llama_index_graph_rag.__path__, prefix="llama_index_graph_rag."
    )
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(str(error))
    failures: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test, out=failures.append)
    text = "".join(failures)
    if "MissingExtraError" in text:
        pytest.skip("needs an extra that is not installed")
    assert runner.summarize(verbose=False).failed == 0, text


@pytest.mark.parametrize("name", sorted(set(llama_index_graph_rag.__all__) - {"__version__"}))
def test_every_public_name_has_an_example(name: str) -> None:
    public = getattr(llama_index_graph_rag, name)
    documented = inspect.getdoc(public) or ""
    assert documented, f"{name} has no docstring"
    if inspect.isclass(public) and issubclass(public, Exception):
        return
    texts = [documented]
    if inspect.isclass(public):
        members = vars(public).values()
        texts += [
            inspect.getdoc(m.__func__ if hasattr(m, "__func__") else m) or "" for m in members
        ]
    assert any(">>>" in text for text in texts), f"{name} has no example"


def test_importing_the_package_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    heavy = "pymilvus", "scipy", "llama_index.core", "pandas", "onnxruntime"
    code = f"import sys, llama_index_graph_rag; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_two_test_files_share_a_name() -> None:
    # pytest imports them by their base name.
    names = [path.name for path in Path(__file__).parent.rglob("*.py")]
    shared = {n for n in names if names.count(n) > 1} - {"conftest.py", "__init__.py"}
    assert not shared
