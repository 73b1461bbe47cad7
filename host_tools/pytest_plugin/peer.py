"""The fixture `peer_lab`: a lab here and one on another host, whose guests share a network.

execnet runs `serve` there, in a Python that has bluebridge installed. What crosses the channel are
simple values: first the options of the lab, then commands for its guests.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.device.server import option_table
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.errors import CommandFailed, LabError
from bluebridge.host_tools.keeper.record import guest_names
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.hardware import ArmedFault, Hardware
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.lab import Lab

if TYPE_CHECKING:
    from execnet import Channel

_SIDE = "from bluebridge.host_tools.pytest_plugin.peer import serve\nserve(channel)"
_START_SECONDS = 300.0
_MORE_SECONDS = 30.0
"""Seconds that an answer may take beyond the time limit of a command."""
_END_SECONDS = 30.0

Arm = Callable[..., AbstractContextManager[ArmedFault]]


def joined(words: list[str], guests: int) -> dict[str, Any]:
    """Return the fields of `LabConfig` of a lab whose server has the options `words`."""
    parser = argparse.ArgumentParser()
    option_table.add_arguments(ServerOptions, parser)
    options = option_table.of_arguments(ServerOptions, parser.parse_args(words))
    return {"names": guest_names(1, guests), "vfio": False, "kernel": True, "options": options}


def serve(channel: Channel) -> None:
    """Start the lab that is asked for, and run commands in its guests until the channel ends."""
    words, guests = channel.receive()
    try:
        with Pair(LabConfig(**joined(words, guests))) as pair:
            channel.send({name: pair.config.address(name) for name in pair.config.names})
            for name, command, timeout in channel:
                channel.send(_run(pair, name, command, timeout))
    except LabError as error:
        channel.send(str(error))


def _run(pair: Pair, name: str, command: str, timeout: float) -> tuple[int, str] | str:
    """Return status and output of a command, or in one line why there are none."""
    try:
        done = pair.machine(name).run(command, timeout=timeout, check=False)
    except LabError as error:
        return str(error)
    return done.status, done.text


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
        fields = joined(option_table.words(_options(own, other)), guests)
        with lab.pair(**fields) as pair:
            yield PeerLab(pair, channel, _answer(channel, _START_SECONDS))
            channel.close()
    finally:
        group.terminate(_END_SECONDS)


def _options(own: str, other: str) -> ServerOptions:
    return ServerOptions(pro=True, wire=other, underlay=own)


class Wire:
    """Faults of one link, `a` unless `of` names another one.

    Conditions are those of docs/faults.md: `wire.drop(qp=1, message=3, psn="+4", transmission=1)`,
    `wire.corrupt(probability=0.01, seed=7)`, `wire.delay(2)`. A rule counts what it has `taken`;
    `release()` of `wire.hold()` lets go of what it keeps, as does the end of the block.
    """

    def __init__(self, hardware: Hardware, link: str = "a") -> None:
        self.of = partial(Wire, hardware)
        self.drop = partial(hardware.drop, link)
        self.corrupt = partial(hardware.corrupt, link)
        self.flip = partial(hardware.flip, link)
        self.duplicate = partial(hardware.duplicate, link)
        self.delay = partial(hardware.delay, link)
        self.rate = partial(hardware.rate, link)
        self.hold = partial(hardware.hold, link)
        self.mark = partial(hardware.mark, link)
        self.rewrite = partial(hardware.rewrite, link)


class Faults:
    """The faults of one HCA, with underscores: `faults.reg_mr_fails(nth=2)`.

    Parameters are those of `bluebridge fault list`. `faults.of("b")` are those of another HCA.
    """

    def __init__(self, hardware: Hardware, hca: str = "a") -> None:
        self._hardware = hardware
        self._hca = hca

    def of(self, hca: str) -> Faults:
        """Return the faults of HCA `hca`: `b`, or `a.1` for the second one of guest a."""
        return Faults(self._hardware, hca)

    def __getattr__(self, method: str) -> Arm:
        """Return what arms the fault of that name; raises `AttributeError` for an unknown one."""
        name = method.replace("_", "-")
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, n=1)
            mend = f"did you mean {near[0].replace('-', '_')}?" if near else ""
            raise AttributeError(f"there is no fault {name!r}; {mend or '`bluebridge fault list`'}")

        def arm(**words: str | int) -> AbstractContextManager[ArmedFault]:
            return self._hardware.fault(self._hca, name, **words)

        return arm

    def __dir__(self) -> list[str]:
        """Return the names of all faults, for completion."""
        return ["of", *(name.replace("-", "_") for name in BY_NAME)]
