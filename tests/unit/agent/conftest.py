"""An agent for the tests of a module, and sessions with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.host_tools.agent import Agent
from tests.models.agent_port import AgentPort, agent_port


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentPort]:
    """One agent for all tests of a module: each must leave it usable."""
    with agent_port(tmp_path_factory.mktemp("agent")) as running:
        yield running


@pytest.fixture
def agent(port: AgentPort) -> Iterator[Agent]:
    """A fresh session, whose operations must have ended with the test."""
    with port.connect() as connected:
        yield connected
        assert connected.ping()["operations"] == 0
