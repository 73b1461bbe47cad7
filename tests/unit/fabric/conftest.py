"""The subnet of the tests of InfiniBand."""

from __future__ import annotations

import pytest

from tests.models.ib_node import Subnet


@pytest.fixture
def subnet() -> Subnet:
    return Subnet()
