"""The guest's hot modules run compiled, or as their sources; both do the same."""

from __future__ import annotations

import pytest

from bluebridge.host_tools.krping import krping_command as command
from bluebridge.host_tools.krping.krping_command import KrpingRequest
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.images.cache import HOME
from bluebridge.images.guest_build import MODULES

pytestmark = pytest.mark.shared_pair
OPTIONS = "addr=192.168.69.127,port=9999,size=100,count=20,validate,mem_mode=reg"
PURE = ("env", "BLUEBRIDGE_PURE=1", "python3", "-m", "bluebridge.guest.protocols.krping")


def test_each_hot_module_is_compiled_unless_sources_are_asked_for(guest_a: Vm) -> None:
    script = "import importlib\nfor name in {!r}: print(importlib.import_module(name).__file__)"
    words = ["python3", "-c", script.format(MODULES)]
    compiled = guest_a.agent.run(words).text.split()
    # mypyc makes up the file's name of a module that another one of the group imports first.
    folder = "/opt/bluebridge/bluebridge/compiled_guest/"
    assert len(compiled) == len(MODULES)
    assert all(name.startswith(folder) for name in compiled), "`make setup` compiles them"
    pure = guest_a.agent.run(["env", "BLUEBRIDGE_PURE=1", *words]).text.split()
    assert pure == [f"/opt/bluebridge/{name.replace('.', '/')}.py" for name in MODULES]


def test_krping_gives_the_same_either_way(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    request = KrpingRequest.parse(f"server,{OPTIONS}", f"client,{OPTIONS}")
    compiled = command.run(pair, request)
    assert compiled.ok, (compiled.failure(), compiled.server.output, compiled.client.output)
    monkeypatch.setattr(command, "_PROGRAM", PURE)
    pure = command.run(pair, request)
    assert pure.ok, (pure.failure(), pure.server.output, pure.client.output)
    for ours, theirs in ((compiled.client, pure.client), (compiled.server, pure.server)):
        first, second = ({**side.result, "us_per_iteration": 0} for side in (ours, theirs))
        assert first == second
        assert first["validated"] == 20


def test_a_failure_in_compiled_code_names_file_and_line(guest_a: Vm) -> None:
    script = "from bluebridge.guest.bus import vfio; vfio.find_device(root='/nowhere')"
    said = guest_a.agent.run(["python3", "-c", script])
    assert said.status == 1
    told = said.stderr.decode()
    lines = (HOME / "bluebridge/guest/bus/vfio.py").read_text().splitlines()
    raised = next(n for n, line in enumerate(lines, 1) if "there is no PCI device" in line)
    assert f'File "bluebridge/guest/bus/vfio.py", line {raised}, in find_any' in told
    assert "DeviceError: there is no PCI device 15b3:1003 or " in told
