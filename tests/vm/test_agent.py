"""The agent in a booted guest, over QEMU's real virtio-serial ports."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_tools import rundir
from host_tools.agent import Agent, AgentLost, CommandTimedOut, Identity
from host_tools.errors import LabError
from host_tools.machine import Machine
from host_tools.parts import ensure_parts
from host_tools.progress import Reporter
from host_tools.vm import Vm, VmConfig
from tests.vm.conftest import BOOT_SECONDS, ROOT

pytestmark = pytest.mark.timeout(2 * BOOT_SECONDS)


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    """One guest without any device of ours. The last test here ends it."""
    parts = ensure_parts(Reporter(quiet=True))
    with rundir.run_folder() as folder:
        size = Machine(memory_mib=512, hugepages=0)
        logs = tmp_path_factory.mktemp("logs")
        machine = Vm(VmConfig("a", size), parts.emulator, folder, logs)
        machine._argv += ["-netdev", "hubport,id=net,hubid=0"]  # only here guests have a NIC
        machine._argv += ["-device", "virtio-net-pci,netdev=net,addr=1d,romfile="]
        try:
            machine.spawn(parts.boot(folder, "a", size, vfio=False))
            machine.attach()
            machine.release()
            machine.wait_for_agent(BOOT_SECONDS)
            yield machine
        finally:
            machine.stop()


def _until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_commands(guest: Vm) -> None:
    completed = guest.agent.run("hostname; echo no >&2; exit 3", timeout=30)
    assert (completed.status, completed.stdout, completed.stderr) == (3, b"a\n", b"no\n")
    data = os.urandom(300_000)
    assert guest.agent.run(["cat"], stdin=data, timeout=30).stdout == data


def test_agent_has_nothing_to_complain_about(guest: Vm) -> None:
    assert guest.agent.read("/run/agent.log") == b""
    assert guest.agent.run("ls /dev/virtio-ports").text.startswith("org.bluebridge.agent")


def test_files_both_ways(guest: Vm, tmp_path: Path) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(os.urandom(5_000_000))
    here.chmod(0o750)
    there = guest.agent.put(here, "/tmp/")
    assert there == "/tmp/here"
    assert guest.agent.run(f"sha256sum < {there}").text == subprocess.check_output(
        ["sha256sum"], stdin=here.open("rb"), text=True
    ).strip("\n")
    guest.agent.get(there, back)
    assert back.read_bytes() == here.read_bytes()
    assert stat.S_IMODE(back.stat().st_mode) == 0o750


def test_time_limit(guest: Vm) -> None:
    with pytest.raises(CommandTimedOut, match="killed after 1 s"):
        guest.agent.run("sleep 1000 & sleep 1000", timeout=1)
    assert "sleep" not in guest.agent.run("ps").text


def test_a_client_that_is_killed_takes_its_command_along(guest: Vm) -> None:
    code = (
        "import sys; from pathlib import Path; from host_tools.agent import Agent\n"
        "Agent.connect('a', [Path(word) for word in sys.argv[1:]]).run('exec sleep 77')\n"
    )
    sockets = [str(path) for path in guest.agent_sockets]
    with subprocess.Popen([sys.executable, "-c", code, *sockets], cwd=ROOT) as client:
        _until(lambda: "sleep 77" in guest.agent.run("ps").text)
        client.kill()
    _until(lambda: "sleep 77" not in guest.agent.run("ps").text)


def test_clients_side_by_side_and_one_after_the_other(guest: Vm) -> None:
    guest.agent.ping()
    for _ in range(5):
        with Agent.connect("a", guest.agent_sockets, timeout=20) as other:
            flood = other.start("cat /dev/zero")
            next(flood.output())
            assert guest.agent.run("echo fine", timeout=20).text == "fine"
    _until(lambda: guest.agent.ping()["operations"] == 0)


def test_a_flood_and_the_console(guest: Vm) -> None:
    flood = guest.agent.start("cat /dev/zero")
    time.sleep(1)
    assert guest.console.run("echo still here").strip() == "still here"
    assert guest.agent.run("true").status == 0
    flood.kill()


def test_no_twins(guest: Vm) -> None:
    random = "head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id"
    first = Identity("zebra")
    guest.agent.run("date -s 2001-01-01")
    assert guest.agent.personalise(first)["hostname"] == "zebra"
    before = guest.agent.run(random).text
    guest.agent.personalise(Identity("heron"))
    after = guest.agent.run(random).text
    assert first.machine_id in before
    assert not set(before.splitlines()) & set(after.splitlines())
    assert guest.agent.run("hostname").text == "heron"
    assert abs(guest.agent.ping()["clock"] - time.time()) < 5


def test_nics_are_no_twins(guest: Vm) -> None:
    guest.agent.run("modprobe virtio_net && ip link set eth0 up", check=True, timeout=60)
    identity = Identity("zebra")
    wanted = (identity.mac_prefix + b"\0").hex(":")
    assert guest.agent.personalise(identity)["macs"] == {"eth0": wanted}
    shown = guest.agent.run("ip link show eth0").text
    assert wanted in shown
    assert ",UP" in shown


def test_an_agent_that_is_killed_comes_back(guest: Vm) -> None:
    agent = guest.agent
    with pytest.raises(AgentLost, match="started anew"):
        agent.run("kill -9 $PPID; sleep 60", timeout=60)
    guest.forget_agent()
    assert guest.agent.run("echo back", timeout=30).text == "back"


def test_qemu_is_killed_during_a_command(guest: Vm) -> None:
    threading.Timer(1, lambda: os.kill(guest.pid, signal.SIGKILL)).start()
    begin = time.monotonic()
    with pytest.raises(LabError, match="guest a: QEMU ended with status -9"):
        guest.agent.run("sleep 100")
    assert time.monotonic() - begin < 10
