"""Two HCAs do what a model of the verbs says: a few hundred steps; `python -m
tests.models.verbs_model` runs many."""

from __future__ import annotations

import pytest

from tests.models.verbs_model.__main__ import run


@pytest.mark.parametrize("seed", [1, 2])
def test_two_hcas_do_what_the_model_says(seed: int) -> None:
    assert run(320, seed) >= 320
