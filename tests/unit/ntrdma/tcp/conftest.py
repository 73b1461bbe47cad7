"""Helpers of all tests of the suite."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest


@pytest.fixture
def free_port() -> int:
    """A TCP port nobody listens at."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        number: int = listener.getsockname()[1]
        return number
