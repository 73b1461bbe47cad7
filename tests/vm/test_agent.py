"""The agent in a booted guest, over QEMU's real virtio-serial ports."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bluebridge.host_tools.agent import Agent, AgentLost, CommandTimedOut, Identity
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.vm import Vm
from tests.models.until import until
from tests.vm.conftest import ROOT

pytestmark = [pytest.mark.devices(), pytest.mark.shared_pair]


@pytest.mark.brief
def test_commands(guest_a: Vm) -> None:
    completed = guest_a.agent.run("hostname; echo no >&2; exit 3", timeout=30)
    assert (completed.status, completed.stdout, completed.stderr) == (3, b"a\n", b"no\n")
    data = os.urandom(300_000)
    assert guest_a.agent.run(["cat"], stdin=data, timeout=30).stdout == data


def test_agent_has_nothing_to_complain_about(guest_a: Vm) -> None:
    assert guest_a.agent.read("/run/agent.log") == b""
    assert guest_a.agent.run("ls /dev/virtio-ports").text.startswith("org.bluebridge.agent")


@pytest.mark.brief
def test_files_both_ways(guest_a: Vm, tmp_path: Path) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(os.urandom(5_000_000))
    here.chmod(0o750)
    there = guest_a.agent.put(here, "/tmp/")
    assert there == "/tmp/here"
    assert guest_a.agent.run(f"sha256sum < {there}").text == subprocess.check_output(
        ["sha256sum"], stdin=here.open("rb"), text=True
    ).strip("\n")
    guest_a.agent.get(there, back)
    assert back.read_bytes() == here.read_bytes()
    assert stat.S_IMODE(back.stat().st_mode) == 0o750


def test_time_limit(guest_a: Vm) -> None:
    with pytest.raises(CommandTimedOut, match="killed after 1 s"):
        guest_a.agent.run("sleep 1000 & sleep 1000", timeout=1)
    until(lambda: "sleep" not in guest_a.agent.run("ps").text)


def test_a_client_that_is_killed_takes_its_command_along(guest_a: Vm) -> None:
    code = (
        "import sys; from pathlib import Path; from bluebridge.host_tools.agent import Agent\n"
        "Agent.connect('a', [Path(word) for word in sys.argv[1:]]).run('exec sleep 77')\n"
    )
    sockets = [str(path) for path in guest_a.agent_sockets]
    with subprocess.Popen([sys.executable, "-c", code, *sockets], cwd=ROOT) as client:
        until(lambda: "sleep 77" in guest_a.agent.run("ps").text)
        client.kill()
    until(lambda: "sleep 77" not in guest_a.agent.run("ps").text)


def test_clients_side_by_side_and_one_after_the_other(guest_a: Vm) -> None:
    guest_a.agent.ping()
    for _ in range(5):
        with Agent.connect("a", guest_a.agent_sockets, timeout=20) as other:
            flood = other.start("cat /dev/zero")
            next(flood.output())
            assert guest_a.agent.run("echo fine", timeout=20).text == "fine"
    until(lambda: guest_a.agent.ping()["operations"] == 0)


def test_a_flood_and_the_console(guest_a: Vm) -> None:
    flood = guest_a.agent.start("cat /dev/zero")
    time.sleep(1)
    assert guest_a.console.run("echo still here").strip() == "still here"
    assert guest_a.agent.run("true").status == 0
    flood.kill()


def test_no_twins(guest_a: Vm) -> None:
    random = "head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id"
    first = Identity("zebra")
    guest_a.agent.run("date -s 2001-01-01")
    assert guest_a.agent.personalise(first)["hostname"] == "zebra"
    before = guest_a.agent.run(random).text
    guest_a.agent.personalise(Identity("heron"))
    after = guest_a.agent.run(random).text
    assert first.machine_id in before
    assert not set(before.splitlines()) & set(after.splitlines())
    assert guest_a.agent.run("hostname").text == "heron"
    assert abs(guest_a.agent.ping()["clock"] - time.time()) < 5


def test_nics_are_no_twins(guest_a: Vm) -> None:
    guest_a.qmp.command("netdev_add", type="hubport", id="net", hubid=0)
    nic = {"driver": "virtio-net-pci", "netdev": "net", "bus": "port0", "romfile": ""}
    guest_a.qmp.command("device_add", **nic)
    until(lambda: guest_a.function(0) is not None)
    up = "modprobe virtio_net; until ip link set eth0 up 2>/dev/null; do sleep 0.1; done"
    guest_a.agent.run(up, check=True, timeout=60)
    identity = Identity("zebra")
    wanted = (identity.mac_prefix + b"\0").hex(":")
    assert guest_a.agent.personalise(identity)["macs"] == {"eth0": wanted}
    shown = guest_a.agent.run("ip link show eth0").text
    assert wanted in shown
    assert ",UP" in shown


def test_an_agent_that_is_killed_comes_back(guest_a: Vm) -> None:
    agent = guest_a.agent
    with pytest.raises(AgentLost, match="started anew"):
        agent.run("kill -9 $PPID; sleep 60", timeout=60)
    guest_a.forget_agent()
    assert guest_a.agent.run("echo back", timeout=30).text == "back"


@pytest.mark.may_crash
def test_qemu_is_killed_during_a_command(guest_a: Vm) -> None:
    threading.Timer(1, lambda: os.kill(guest_a.pid, signal.SIGKILL)).start()
    begin = time.monotonic()
    with pytest.raises(LabError, match="guest a: QEMU ended with status -9"):
        guest_a.agent.run("sleep 100")
    assert time.monotonic() - begin < 10
