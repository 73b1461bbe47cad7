"""The pair of the tests of Ethernet."""

from __future__ import annotations

import pytest

from tests.models.ethernet import Rings, ethernet_pair
from tests.models.rdma_node import Pair


@pytest.fixture
def pair() -> Pair:
    """Two guests with an Ethernet queue pair each."""
    return ethernet_pair()


@pytest.fixture
def rings() -> Rings:
    return Rings()
