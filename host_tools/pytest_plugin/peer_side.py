"""The far end of the fixture `peer_lab`: a lab on another host that a test session asks for.

execnet runs `serve` there, in a Python that has bluebridge installed. What crosses the channel are
simple values: first the options of the lab, then commands for its guests.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bluebridge.device.server import option_table
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper.record import guest_names
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair

if TYPE_CHECKING:
    from execnet import Channel


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
