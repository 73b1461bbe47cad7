"""`bluebridge tour` between two guests: each step happens as it says, nothing is left."""

from __future__ import annotations

import pytest

from bluebridge.host_tools.tour.steps import STEPS
from tests.models.lab_commands import Commands


@pytest.mark.brief
def test_the_tour_shows_what_it_says(bluebridge: Commands) -> None:
    said = bluebridge.good("tour", "--no-pause", "--quiet")
    places = [said.index(f"{n} of {len(STEPS)}: {step.title}") for n, step in enumerate(STEPS, 1)]
    assert places == sorted(places)
    for text in (
        "NAK_REMOTE_ACCESS",
        "rule 1 drops",
        "MSI-X vector",
        "played in a browser",
        "addresses end",
    ):
        assert text in said
    assert "nothing runs" in bluebridge.good("ps")
