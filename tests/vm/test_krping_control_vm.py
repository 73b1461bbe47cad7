"""/run/krping in the guests: commands from a shell, several at once, statistics, Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.lab import Lab

FILE = "/run/krping"
LOG = "/tmp/krping.log"
PORTS = (9999, 9998)


def _serve(machine: Vm) -> None:
    ip = "192.168.69.127" if machine.name == "a" else "192.168.69.128"
    daemon = f"python3 -m bluebridge.guest.protocols.krping.control --ip {ip} --log {LOG}"
    machine.console.run(f"({daemon} </dev/null >/dev/null 2>/tmp/errors & echo $! > /tmp/pid)")
    _until(machine, f"[ -L {FILE} ]")  # what is written now waits for the device


def _end(machine: Vm) -> None:
    machine.console.run("kill $(cat /tmp/pid)")
    _until(machine, "! kill -0 $(cat /tmp/pid) 2>/dev/null")
    assert machine.console.run(f"ls {FILE} 2>/dev/null || true") == ""


def _until(machine: Vm, condition: str) -> None:
    machine.console.run(f"until {condition}; do sleep 0.1; done", timeout=60)


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Pair]:
    """Both guests with a control file; at the end it can be taken away again."""
    with lab.pair() as pair:
        pair.both(_serve)
        yield pair
        pair.both(_end)


def _write(machine: Vm, name: str, command: str) -> None:
    """A writer in the background: its pid in /tmp/NAME.pid, at last its status in /tmp/NAME."""
    machine.console.run(
        f"rm -f /tmp/{name}; ((sh -c 'echo $$ > /tmp/{name}.pid; exec /bin/echo \"$0\" > {FILE}' "
        f"{command} 2>/dev/null; echo $? > /tmp/{name}) </dev/null >/dev/null 2>&1 &)"
    )


def _status(machine: Vm, name: str) -> int:
    _until(machine, f"[ -s /tmp/{name} ]")
    return int(machine.console.run(f"cat /tmp/{name}"))


@pytest.mark.brief
def test_control_file(served: Pair) -> None:
    """Two threads at once; the one's writer is killed, the other's gets Ctrl-C."""
    a, b = served.a, served.b
    for port in PORTS:
        _write(a, f"server{port}", f"server,addr=192.168.69.127,port={port}")
        _until(a, f"[ $(grep -c rdma_listen {LOG}) -gt {PORTS.index(port)} ]")
    first, second = (f"client,addr=192.168.69.127,port={port},validate" for port in PORTS)
    _write(b, "first", first)
    b.console.begin(f"echo {second} > {FILE}")
    _until(a, f"[ $(awk '$9 > 0' {FILE} | wc -l) = 2 ]")  # each has read something
    lines = a.console.run(f"cat {FILE}").splitlines()
    assert [line.split()[0] for line in lines] == ["1-mlx4_0", "2-mlx4_0"]
    assert all(len(line.split()) == 9 for line in lines)
    b.console.interrupt()
    assert b.console.finish(60)[0] != 0
    assert _status(a, f"server{PORTS[1]}") == 0
    assert len(b.console.run(f"cat {FILE}").splitlines()) == 1
    b.console.run("kill $(cat /tmp/first.pid)")
    assert _status(b, "first") != 0
    assert _status(a, f"server{PORTS[0]}") == 0
    assert b.console.run(f"cat {FILE}") == ""
    _write(b, "wrong", "client,addr=192.168.69.127,port=9999,fast")
    assert _status(b, "wrong") != 0
    assert "unknown option fast" in b.console.run(f"cat {LOG}")


def test_file_system(served: Pair) -> None:
    """One regular file, to which nothing can be added and from which nothing can be taken."""
    script = (
        "cd /run/.krping && test -f control && test ! -e other && ls | grep -qx control "
        "&& ! rm -f control 2>/dev/null && ! touch other 2>/dev/null && echo right"
    )
    assert served.a.console.run(script) == "right"


def test_daemon_ends_with_a_writer_blocked(served: Pair) -> None:
    """The writer gets its answer, the mount is gone; then the daemon comes back."""
    a = served.a
    _write(a, "waiting", "server,addr=192.168.69.127,port=9997")
    _until(a, f"grep -q listen {FILE}")
    _end(a)
    assert _status(a, "waiting") != 0
    assert a.console.run("grep -c krping /proc/mounts || true") == "0"
    _serve(a)
