"""What fuzzers have found and kept, once more: no input of any corpus breaks its target."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import targets

CORPUS = Path(targets.__file__).with_name("corpus")


@pytest.mark.parametrize("name", targets.TARGETS)
def test_inputs_of_the_corpus(name: str) -> None:
    for path in sorted((CORPUS / name).glob("*")):
        targets.TARGETS[name](path.read_bytes())
