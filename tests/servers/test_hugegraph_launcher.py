from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "hugegraph_launcher", Path(__file__).with_name("hugegraph.py")
)
launcher = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launcher)


def test_without_java_or_maven_it_says_why(monkeypatch, capsys):
    monkeypatch.setattr(launcher.shutil, "which", lambda program: None)
    assert launcher.main(["--", "true"]) == launcher.UNAVAILABLE
    assert launcher.main(["--optional", "--", "true"]) == 0
    assert "java is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(("version", "fits"), [("1.8.0_1", 0), ("11.0.2", 1), ("17", 1), ("25", 0)])
def test_java_must_fit(monkeypatch, version, fits):
    class Shown:
        stderr = f'openjdk version "{version}" 2026'

    monkeypatch.setattr(launcher.shutil, "which", lambda program: program)
    monkeypatch.setattr(launcher.subprocess, "run", lambda *args, **kwargs: Shown)
    if fits:
        launcher.check_machine()
    else:
        with pytest.raises(launcher.CannotRunHereError, match="Java 11 to 17"):
            launcher.check_machine()


def test_the_pom_replaces_groovy():
    root = ET.fromstring(launcher._pom())
    versions = {node.text for node in root.iter("{http://maven.apache.org/POM/4.0.0}version")}
    assert versions == {"1", launcher.GROOVY, launcher.VERSION}


def test_settings_are_replaced_not_repeated(tmp_path):
    file = tmp_path / "some.properties"
    file.write_text("# a=1\nbackend=rocksdb\nstore=x\n")
    launcher._set(file, {"backend": "memory"})
    assert file.read_text().splitlines() == ["# a=1", "store=x", "backend=memory"]
