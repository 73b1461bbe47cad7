"""The fixture `peer_lab`: a lab here and one on another host, whose guests share a network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from bluebridge.device.server import option_table
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.errors import CommandFailed, LabError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin import peer_side
from bluebridge.host_tools.pytest_plugin.lab import Lab

if TYPE_CHECKING:
    from execnet import Channel

_SIDE = "from bluebridge.host_tools.pytest_plugin.peer_side import serve\nserve(channel)"
_START_SECONDS = 300.0
_MORE_SECONDS = 30.0
"""Seconds that an answer may take beyond the time limit of a command."""
_END_SECONDS = 30.0


class PeerLab:
    """A lab on another host; `pair` is the one here, and guests of both reach each other."""

    def __init__(self, pair: Pair, channel: Channel, addresses: dict[str, str]) -> None:
        self.pair = pair
        self._channel = channel
        self._addresses = addresses

    def address(self, name: str) -> str:
        """Return the IP address of guest `name` of the other host."""
        return self._addresses[name].partition("/")[0]

    def run(self, name: str, command: str, timeout: float = 60.0) -> str:
        """Run a shell line in a guest of the other host; return its output.

        Raises `CommandFailed` for a status other than 0, `LabError` when there is no answer.
        """
        self._channel.send((name, command, timeout))
        answer = _answer(self._channel, timeout + _MORE_SECONDS)
        status, output = answer
        if status:
            raise CommandFailed(f"{name} of the other host", command, status, output)
        return str(output)


def _answer(channel: Channel, seconds: float) -> Any:
    """Return what the other host sends. Raises `LabError` when that is a line about a failure."""
    try:
        answer = channel.receive(seconds)
    except (EOFError, OSError) as error:
        raise LabError(f"the other host does not answer: {error or type(error).__name__}") from None
    if isinstance(answer, str):
        raise LabError(f"the other host: {answer}")
    return answer


@contextlib.contextmanager
def peer_lab(config: pytest.Config, lab: Lab, guests: int = 2) -> Iterator[PeerLab]:
    """Start a lab here and one behind the gateway that the session names; end both."""
    spec, hosts = config.getoption("--bluebridge-peer"), config.getoption("--bluebridge-hosts")
    if not spec or not hosts:
        pytest.skip("no other host: give --bluebridge-peer SPEC and --bluebridge-hosts OWN,OTHER")
    own, _, other = hosts.partition(",")
    import execnet

    group = execnet.Group()
    try:
        channel = group.makegateway(spec).remote_exec(_SIDE)
        channel.send((option_table.words(_options(other, own)), guests))
        fields = peer_side.joined(option_table.words(_options(own, other)), guests)
        with lab.pair(**fields) as pair:
            yield PeerLab(pair, channel, _answer(channel, _START_SECONDS))
            channel.close()
    finally:
        group.terminate(_END_SECONDS)


def _options(own: str, other: str) -> ServerOptions:
    return ServerOptions(pro=True, wire=other, underlay=own)
