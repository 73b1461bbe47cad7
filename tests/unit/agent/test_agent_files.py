"""Files through the real agent: whole or not at all; and who the guest is."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bluebridge.guest.agent.machine import virtio_nics
from bluebridge.host_tools.agent import Agent, AgentError, AgentRefused, Identity
from tests.models.agent_port import AgentPort


@pytest.mark.parametrize("size", [0, 1, 32_735, 32_736, 32_737, 262_144, 20_000_000])
def test_both_ways(agent: Agent, tmp_path: Path, size: int) -> None:
    here, there, back = tmp_path / "here", tmp_path / "there", tmp_path / "back"
    here.write_bytes(os.urandom(size))
    here.chmod(0o751)
    assert agent.put(here, str(there)) == str(there)
    assert there.read_bytes() == here.read_bytes()
    assert agent.get(str(there), back) == back
    assert back.read_bytes() == here.read_bytes()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (there, back)} == {0o751}
    assert sorted(os.listdir(tmp_path)) == ["back", "here", "there"]


def test_into_folders(agent: Agent, tmp_path: Path) -> None:
    here, there, back = tmp_path / "file", tmp_path / "there", tmp_path / "back"
    here.write_bytes(b"x")
    there.mkdir()
    back.mkdir()
    assert agent.put(here, str(there)) == f"{there}/file"
    assert agent.put(here, f"{there}/") == f"{there}/file"
    assert agent.get(f"{there}/file", back) == back / "file"


def test_bytes_and_modes(agent: Agent, tmp_path: Path) -> None:
    target = tmp_path / "script"
    agent.put(b"#!/bin/sh\necho hello\n", str(target), mode=0o700)
    assert agent.run([str(target)]).text == "hello"
    assert agent.read(str(target)) == target.read_bytes()


def test_replacing_keeps_a_link(agent: Agent, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to("real")
    agent.put(b"new", str(link))
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_files_without_a_size(agent: Agent) -> None:
    assert agent.read("/proc/version") == Path("/proc/version").read_bytes()


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/no/such", "/no/such: No such file or directory"),
        ("/etc", "/etc: is a folder"),
        ("/dev/zero", "/dev/zero: is no regular file"),
    ],
)
def test_what_cannot_be_got(agent: Agent, tmp_path: Path, path: str, pattern: str) -> None:
    with pytest.raises(AgentRefused, match=rf"guest a: get: {pattern}"):
        agent.get(path, tmp_path / "target")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/no/such/folder", "/no/such/folder: No such file or directory"),
        ("/etc", "/etc: is a folder"),
        ("/dev/null", "/dev/null: is no regular file"),
    ],
)
def test_what_cannot_be_put(agent: Agent, path: str, pattern: str) -> None:
    with pytest.raises(AgentRefused, match=rf"guest a: put: {pattern}"):
        agent.put(bytes(5_000_000), path)


def test_what_is_not_here(agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="missing: No such file"):
        agent.put(tmp_path / "missing", "/tmp/")
    with pytest.raises(AgentError, match="No such file"):
        agent.get("/proc/version", tmp_path / "missing" / "x")


def test_a_host_that_vanishes_leaves_no_partial_file(port: AgentPort, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")

    class Vanishing(Exception):
        pass

    class Source:
        def __init__(self) -> None:
            self.pieces = 10

        def read(self, _size: int) -> bytes:
            self.pieces -= 1
            if not self.pieces:
                deadline = time.monotonic() + 5
                while len(os.listdir(tmp_path)) < 2:
                    assert time.monotonic() < deadline
                first.close()
                raise Vanishing
            return bytes(10_000)

    first = port.connect()
    with pytest.raises(Vanishing):
        first.put_stream(Source(), "", str(target), 0o644)  # type: ignore[arg-type]
    with port.connect() as agent:
        agent.ping()
    assert os.listdir(tmp_path) == ["target"]
    assert target.read_bytes() == b"old"


def test_a_full_disk(agent: Agent, port: AgentPort, tmp_path: Path) -> None:
    """A limit on the size of files plays the disk: a write fails in the middle."""
    target = tmp_path / "target"
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(port.pid, resource.RLIMIT_FSIZE, (1 << 20, unlimited))
    try:
        with pytest.raises(AgentRefused, match="target: File too large"):
            agent.put(bytes(4 << 20), str(target))
    finally:
        resource.prlimit(port.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    assert os.listdir(tmp_path) == []


def test_names_of_a_guest(agent: Agent, port: AgentPort) -> None:
    identity = Identity("zebra")
    words = {"op": "personalise", "hostname": "zebra", "machine_id": identity.machine_id}
    answer = agent.connection.open(words, "personalise").result()
    assert answer == {"hostname": "zebra", "machine_id": identity.machine_id}
    for name in ("etc/hostname", "proc/sys/kernel/hostname"):
        assert (port.root / name).read_text() == "zebra\n"
    assert (port.root / "etc/machine-id").read_text() == identity.machine_id + "\n"


def test_clock_and_pool_of_another_root_are_out_of_reach(agent: Agent) -> None:
    with pytest.raises(AgentRefused, match=r"the entropy of .* cannot be set"):
        agent.personalise(Identity("zebra"))
    words = {"op": "personalise", "boot_id": Identity("zebra").boot_id}
    with pytest.raises(AgentRefused, match=r"the boot id of .* cannot be set"):
        agent.connection.open(words, "personalise").result()


@pytest.mark.parametrize(
    "words",
    [
        {"hostname": ""},
        {"hostname": "a b"},
        {"machine_id": "12"},
        {"machine_id": "0" * 32},
        {"machine_id": "x" * 32},
        {"mac_prefix": "0300000000"},
        {"mac_prefix": "02"},
    ],
)
def test_what_nobody_can_be(agent: Agent, words: dict[str, str]) -> None:
    with pytest.raises(AgentRefused):
        agent.connection.open({"op": "personalise", **words}, "personalise").result()


def test_two_identities_differ() -> None:
    first, second = Identity("a").request(), Identity("a").request()
    assert not {"machine_id", "boot_id", "mac_prefix", "entropy"} & {
        key for key in first if first[key] == second[key]
    }


def test_virtio_nics_in_order(tmp_path: Path) -> None:
    for name, number, driver in (
        ("eth1", 3, "virtio_net"),
        ("eth0", 12, "virtio_net"),
        ("x", 2, "e1000"),
    ):
        folder = tmp_path / "sys/class/net" / name
        (folder / "device").mkdir(parents=True)
        (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "device/driver").symlink_to(tmp_path / "drivers" / driver)
        (folder / "ifindex").write_text(f"{number}\n")
    assert virtio_nics(str(tmp_path)) == ["eth1", "eth0"]


COPY = """
import argparse, sys
from pathlib import Path
from types import SimpleNamespace
from bluebridge.host_tools.agent import Agent
from bluebridge.host_tools.commands import copy
connect = lambda: Agent.connect("a", [Path(sys.argv[1])], 20)
copy.guests.find = lambda name: SimpleNamespace(agent=connect)
copy.main(argparse.Namespace(places=sys.argv[2:], recursive=False))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_copy_that_is_terminated_leaves_no_part(
    port: AgentPort, tmp_path: Path, number: signal.Signals
) -> None:
    endless, here = tmp_path / "endless", tmp_path / "here"
    with endless.open("wb") as stream:
        stream.truncate(16 << 30)
    here.mkdir()
    words = [sys.executable, "-c", COPY, str(port.path), f"a:{endless}", f"{here}/copy"]
    copying = subprocess.Popen(words)
    while not any(part.stat().st_size for part in here.iterdir()):
        assert copying.poll() is None
    copying.send_signal(number)
    assert copying.wait() == 128 + number
    assert list(here.iterdir()) == []
    with port.connect() as agent:
        assert agent.ping()["operations"] == 0
