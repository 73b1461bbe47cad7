"""What fuzzers have found and kept, once more: no input of any corpus breaks its target."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import targets

CORPUS = Path(targets.__file__).with_name("corpus")


@pytest.mark.parametrize("name", targets.TARGETS)
def test_inputs_of_the_corpus(name: str) -> None:
    paths = sorted((CORPUS / name).glob("*"))
    assert paths
    for path in paths:
        targets.run(name, path.read_bytes())


def test_a_target_that_cannot_be_fuzzed_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As without atheris."""
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path / "corpus")
    monkeypatch.setattr(fuzz, "FINDINGS", tmp_path / "findings")
    options = argparse.Namespace(seconds=1, brief=False)
    for status in (1, 0):
        monkeypatch.setattr(fuzz, "_run", lambda *_, status=status: (status, "its last line"))
        assert fuzz.fuzz(["lines"], options) == status


def test_without_atheris_a_brief_run_says_that_it_only_replays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", "--brief"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert fuzz.main() == 0
    assert capsys.readouterr().out == fuzz.MISSING + "\n"


def test_what_a_brief_run_finds_is_in_its_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(module: str, name: str, *words: str) -> tuple[int, str]:
        (tmp_path / f"{name}-crash-1").write_bytes(b"input")
        return 77, "its last line"

    monkeypatch.setattr(fuzz, "CORPUS", tmp_path / "corpus")
    monkeypatch.setattr(fuzz, "FINDINGS", tmp_path)
    monkeypatch.setattr(fuzz, "_run", find)
    assert fuzz.fuzz(["lines"], argparse.Namespace(seconds=1, brief=True)) == 1
    said = capsys.readouterr().out
    assert f"--replay lines {tmp_path / 'lines-crash-1'}" in said and "aW5wdXQ=" in said
    assert not list((tmp_path / "corpus" / "lines").iterdir())
