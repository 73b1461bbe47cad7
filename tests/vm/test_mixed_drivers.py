"""A guest with the kernel's mlx4 drivers, and a host that plays its peer: krping against rping."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.host_tools.agent import Completed
from bluebridge.host_tools.analyzer.pcap import export
from bluebridge.host_tools.hosts.host import Host
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from tests.models.capture_reader import Parsed, parse, read_file

pytestmark = [pytest.mark.shared_pair, pytest.mark.hosts("b")]

KERNEL, OWN = "192.168.69.127", "192.168.69.128"
KERNEL6, OWN6 = "fd00:69::127", "fd00:69::128"
PORT, CLOSED = 9999, 9998
SIZE, COUNT = 4097, 50
"""Five packets of 1024 bytes, the last of a single byte."""
LOG = "/tmp/mixed.log"
PATIENCE = 60.0
REJECTED_SERVICE_ID = 8


@pytest.fixture
def kernel(pair: Pair) -> Vm:
    """The guest whose kernel drives the HCA; the first test hands it over."""
    if pair.a.run("ls /sys/class/infiniband", check=False).status != 0:
        pair.a.run(f"bluebridge-mlx4 {KERNEL}/24", timeout=2 * PATIENCE)
    return pair.a


@pytest.fixture
def own(pair: Pair) -> Iterator[Host]:
    """The host on which krping drives the HCA."""
    yield pair.hosts["b"]
    pair.hosts["b"].stop()


def _until(condition: str) -> str:
    """A shell line that waits for a condition."""
    return f"until {condition}; do sleep 0.05; done"


def _krping(options: str) -> str:
    return f"python3 -m bluebridge.guest.protocols.krping --ip {OWN} --json {options}"


def _result(output: str) -> dict[str, Any]:
    """The object that krping prints last."""
    found = json.loads(output.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def _serve_by_kernel(kernel: Vm, options: str) -> None:
    """Start rping and wait until it listens."""
    kernel.run(f"rping -s -a {KERNEL} -p {PORT} {options} > {LOG} 2>&1 & echo $! > {LOG}.pid")
    kernel.run(_until("rdma resource show cm_id | grep -q LISTEN"), timeout=PATIENCE)


def _serve_by_krping(own: Host, options: str) -> None:
    """Start krping and wait until it listens."""
    own.begin(_krping(f"server,addr={OWN},port={PORT},{options}"))
    assert own.finish(PATIENCE, progress="rdma_listen\n")[0] == -1


def _served(own: Host) -> dict[str, Any]:
    """Return what the krping server says in the end."""
    return _result(own.finish(PATIENCE)[1])


def _asks(own: Host, options: str, port: int = PORT) -> dict[str, Any]:
    """Return what a krping client says in the end."""
    return _result(own.run(_krping(f"client,addr={KERNEL},port={port},{options}"), PATIENCE)[1])


def _ended(kernel: Vm) -> Completed:
    """Wait for the end of the rping in the background; its output."""
    kernel.run(_until(f"! kill -0 $(cat {LOG}.pid) 2>/dev/null"), timeout=PATIENCE)
    return kernel.run(f"cat {LOG}")


def _rping(kernel: Vm, options: str, port: int = PORT) -> Completed:
    """Run rping's client to its end; it waits two seconds for an answer to ARP, and no longer."""
    command = f"rping -c -a {OWN} -p {port} -V {options}"
    for _ in range(5):
        done = kernel.run(command, timeout=PATIENCE, check=False)
        if "RDMA_CM_EVENT_ADDR_ERROR" not in _errors(done):
            break
    return done


def _errors(done: Completed) -> str:
    return done.stderr.decode()


@pytest.mark.brief("mem_mode=reg")
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("mem_mode=dma", marks=pytest.mark.long),
        "mem_mode=reg",
        pytest.param("local_dma_lkey", marks=pytest.mark.long),
    ],
)
def test_rping_serves_krping(kernel: Vm, own: Host, mode: str) -> None:
    _serve_by_kernel(kernel, f"-S {SIZE}")
    result = _asks(own, f"count={COUNT},size={SIZE},validate,{mode}")
    assert (result["ok"], result["validated"]) == (True, COUNT)
    assert "server DISCONNECT EVENT..." in _ended(kernel).text


def test_rping_serves_krping_at_an_ipv6_address(kernel: Vm, own: Host) -> None:
    """Both find each other by neighbour discovery; neither is told a size."""
    interface = kernel.run(f"ip -o -4 addr show to {KERNEL}").text.split()[1]
    kernel.run(f"ip -6 addr replace {KERNEL6}/64 dev {interface} nodad; ip neigh flush all")
    kernel.run(f"rping -s -a {KERNEL6} -p {PORT} > {LOG} 2>&1 & echo $! > {LOG}.pid")
    kernel.run(_until("rdma resource show cm_id | grep -q LISTEN"), timeout=PATIENCE)
    command = f"client,addr6={KERNEL6},port={PORT},count={COUNT},validate,tos=104"
    krping = f"python3 -m bluebridge.guest.protocols.krping --ip {OWN6} --json {command}"
    result = _result(own.run(krping, PATIENCE)[1])
    assert (result["ok"], result["validated"]) == (True, COUNT)
    assert "server DISCONNECT EVENT..." in _ended(kernel).text


@pytest.mark.brief
def test_krping_serves_rping(kernel: Vm, own: Host) -> None:
    _serve_by_krping(own, f"size={SIZE},validate,count={COUNT}")
    client = _rping(kernel, f"-S {SIZE} -C {COUNT}")
    assert client.status == 0, _errors(client)
    served = _served(own)
    assert (served["ok"], served["validated"]) == (True, COUNT)
    assert served["stats"]["read_bytes"] == COUNT * SIZE


def test_the_kernel_finds_its_neighbour_by_arp(kernel: Vm, own: Host) -> None:
    """Nothing remembers the other's address: both ask, both are answered."""
    kernel.run("ip neigh flush all")
    _serve_by_krping(own, "count=1")
    assert _rping(kernel, "-C 1").status == 0
    assert _served(own)["ok"]
    known = kernel.run(f"ip neigh show {OWN}").text
    assert re.search(r"lladdr 00:02:c9:bb:00:02", known), known


def test_one_server_and_client_after_client(kernel: Vm, own: Host) -> None:
    """krping resets its HCA each time, so every connection has the same queue pair number."""
    _serve_by_kernel(kernel, f"-P -S {SIZE}")
    try:
        for _ in range(3):
            assert _asks(own, f"count=5,size={SIZE},validate")["validated"] == 5
    finally:
        kernel.run(f"kill $(cat {LOG}.pid)")


def test_nobody_listens(kernel: Vm, own: Host) -> None:
    """Each side's connection manager refuses by the same reason and understands the other's."""
    asked = _asks(own, "count=1", CLOSED)
    assert asked["error"].startswith(f"nobody listens on port {CLOSED}")
    _serve_by_krping(own, "count=1")
    refused = _rping(kernel, "-C 1", CLOSED)
    assert refused.status != 0
    assert f"RDMA_CM_EVENT_REJECTED, error {REJECTED_SERVICE_ID}" in _errors(refused)
    assert _rping(kernel, "-C 1").status == 0  # the server was not disturbed
    assert _served(own)["ok"]


def test_an_rping_client_is_killed(kernel: Vm, own: Host) -> None:
    """The kernel disconnects in its name."""
    _serve_by_krping(own, f"size={SIZE},validate,verbose")
    kernel.run(f"rping -c -a {OWN} -p {PORT} -S {SIZE} -V & echo $! > {LOG}.pid")
    assert own.finish(PATIENCE, progress="ping data")[0] == -1
    kernel.run(f"kill -9 $(cat {LOG}.pid)")
    assert _served(own)["validated"] > 0


def test_a_krping_client_is_killed(kernel: Vm, own: Host) -> None:
    """Nobody disconnects in its name; the next one has another queue pair number and is served."""
    _serve_by_kernel(kernel, f"-P -S {SIZE}")
    try:
        own.begin(_krping(f"client,addr={KERNEL},port={PORT},size={SIZE}"))
        assert own.finish(PATIENCE, progress="ESTABLISHED")[0] == -1
        # Stopped before, it owes no answer that would have rping give up by itself in 8.6 seconds.
        os.kill(own.pid, signal.SIGSTOP)
        time.sleep(1)
        own.stop()
        assert _asks(own, f"count=5,size={SIZE},validate")["validated"] == 5
    finally:
        kernel.run(f"kill $(cat {LOG}.pid)")


def test_a_client_whose_buffer_is_too_large(kernel: Vm, own: Host) -> None:
    _serve_by_krping(own, "size=64")
    _rping(kernel, f"-S {SIZE} -C 1")
    assert f"the client's size={SIZE} is larger" in _served(own)["error"]


def test_what_crossed_the_fabric(pair: Pair, kernel: Vm, own: Host, tmp_path: Path) -> None:
    """Every packet of both drivers is right, and each side starts where the other one said."""
    _serve_by_krping(own, f"size={SIZE},count=2")
    assert _rping(kernel, f"-S {SIZE} -C 2").status == 0
    assert _served(own)["ok"]
    with (tmp_path / "capture").open("wb") as file:
        export.export(LogReader(pair.logs), Filter(), file)
    packets = [found for frame in read_file(tmp_path / "capture") if (found := parse(frame))]
    assert any(packet.payload[16:18] == b"\0\x10" for packet in packets if packet.target == 1)
    assert not [packet for packet in packets if _is_sequence_error(packet)]


def _is_sequence_error(packet: Parsed) -> bool:
    return packet.opcode == 0x11 and packet.extensions["aeth"][0] == 0x60
