"""docs/send_receive.py in both guests, as docs/verbs.md has it."""

from __future__ import annotations

import os

import pytest

from bluebridge.host_tools.agent import Command
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from tests.vm.conftest import ROOT

pytestmark = pytest.mark.shared_pair


def _start(guest: Vm, role: str, told: int) -> Command:
    guest.agent.put(ROOT / "docs/send_receive.py", "/tmp/")
    line = f"python3 /tmp/send_receive.py {role}"
    return guest.agent.start(line, 60, stdin=open(told, "rb", buffering=0))


def _wait(command: Command, tell: int) -> str:
    """Pass its line of standard output on; returns what it said on standard error."""
    said = b""
    for stream, data in command.output():
        if stream == "stdout":
            os.write(tell, data)
        else:
            said += data
    assert command.wait().status == 0, said
    return said.decode()


@pytest.mark.brief
def test_five_bytes_go_over(pair: Pair) -> None:
    (from_a, to_b), (from_b, to_a) = os.pipe(), os.pipe()
    sender, receiver = _start(pair.a, "send", from_b), _start(pair.b, "receive", from_a)
    said: dict[str, str] = {}
    pair.together(
        lambda: said.update(a=_wait(sender, to_b)), lambda: said.update(b=_wait(receiver, to_a))
    )
    assert said == {"a": "SEND b'hello'\n", "b": "RECV b'hello'\n"}
    os.close(to_a)
    os.close(to_b)
