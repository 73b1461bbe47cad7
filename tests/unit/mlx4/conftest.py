"""The device of the tests of one ConnectX-3."""

from __future__ import annotations

import pytest

from tests.models.hca_driver import Driver


@pytest.fixture
def driver() -> Driver:
    """A started device with its ports closed."""
    return Driver().start()
