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
    options = argparse.Namespace(seconds=1)
    for status in (1, 0):
        monkeypatch.setattr(fuzz, "_run", lambda *_, status=status: (status, "its last line"))
        assert fuzz._fuzz(["lines"], options) == status
