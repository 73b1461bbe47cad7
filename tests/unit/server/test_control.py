"""Orders of a person to the hardware: cables, faults, and the driver's way out of them."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import threading
import time
from pathlib import Path

import pytest

from bluebridge import compiled
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import segment_name
from bluebridge.device.buslog.writer import EventLog, FileLog
from bluebridge.device.fabric.fault_words import DRIVEN
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.bar0 import CATAS
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.eqe import PORT_ACTIVE, PORT_DOWN, EventType
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.control import ControlCommands, ControlSocket
from bluebridge.host_tools.lab import hardware
from bluebridge.hot_modules import DEVICE
from tests.models.hca_driver import Driver
from tests.models.rdma_node import Pair, SendOpcode


@pytest.fixture
def driver() -> Driver:
    driver = Driver().start()
    driver.command(Opcode.INIT_PORT, 0, 1)
    driver.events(EventType.PORT_CHANGE)
    return driver


@pytest.fixture
def commands(driver: Driver) -> ControlCommands:
    return ControlCommands({"a": driver.hca}, FaultRules(driver.host.call_later, EventLog()))


def error_buffer(driver: Driver) -> bytes:
    """Return what `poll_catas` reads."""
    words = range(bar0.CATAS_OFFSET, bar0.CATAS_OFFSET + bar0.CATAS_DWORDS * 4, 4)
    return b"".join(driver.hca.bar_read(0, at, 4) for at in words)


def test_the_cable(driver: Driver, commands: ControlCommands) -> None:
    assert commands.execute("status") == ["a/1 working cable in link up", "ok"]
    assert commands.execute("link a down") == ["ok"]
    assert commands.execute("link a/1 down") == ["ok"]
    assert commands.execute("status")[0] == "a/1 working cable out link down"
    assert commands.execute("link a up") == ["ok"]
    events = [event["subtype"] for event in driver.events(EventType.PORT_CHANGE)]
    assert events == [PORT_DOWN, PORT_ACTIVE]


@pytest.mark.parametrize(
    "line",
    ["", "frob", "link", "link a", "link a sideways", "link b up", "link a/2 up", "link a/x up",
     "fault", "fault b", "status a", "link a up now", "profile", "profile start now",
     "profile stop", "profile stop /nowhere/stacks", "\0"],
)  # fmt: skip
def test_nonsense_is_one_line(commands: ControlCommands, line: str) -> None:
    (answer,) = commands.execute(line)
    assert answer.startswith("error: ")


def test_stacks_by_processor_time(
    driver: Driver, commands: ControlCommands, tmp_path: Path
) -> None:
    stacks = tmp_path / "stacks"
    before = time.process_time()
    assert commands.execute("profile start") == ["ok"]
    while time.process_time() < before + 0.1:
        error_buffer(driver)
    assert commands.execute(f"profile stop {stacks}") == ["ok"]
    found = stacks.read_text()
    # Native code has no frames: its time counts for the function that called it.
    inside = ".*bar_read.*" if compiled.kind_of(DEVICE) == "pure" else ".*error_buffer.*"
    assert re.search(rf"(?m)^.*test_stacks_by_processor_time;{inside} \d+$", found), found


def test_the_socket_is_never_open_to_others(
    commands: ControlCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for the moment until a chmod."""
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    before, loop = os.umask(0), EventLoop()
    try:
        control = ControlSocket(tmp_path / "control", commands, loop)
        assert (tmp_path / "control").stat().st_mode & 0o777 == 0o600
        control.close()
    finally:
        loop.close()
        os.umask(before)


def test_the_socket_rests_while_there_is_no_descriptor(
    commands: ControlCommands, tmp_path: Path
) -> None:
    """The client waits in the queue; the loop does not spin for it."""
    path, loop = tmp_path / "control", EventLoop()
    control = ControlSocket(path, commands, loop)
    client = socket.socket(socket.AF_UNIX)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        client.connect(str(path))
        loop.step(0)
        assert loop.timers_kept == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    client.send(b"status\n")
    client.settimeout(0)
    answer = b""
    while not answer:
        loop.step(2)
        with contextlib.suppress(BlockingIOError):
            answer = client.recv(100)
    assert answer.endswith(b"ok\n")
    client.close()
    control.close()
    loop.close()


def test_a_reason_that_does_not_fit_is_refused(driver: Driver, commands: ControlCommands) -> None:
    assert commands.execute("fault a " + 61 * "x") == [
        "error: the text has 61 letters; at most 60 fit"
    ]
    assert not any(error_buffer(driver))
    assert commands.execute("fault a " + 60 * "x") == [DRIVEN, "ok"]
    assert CATAS.get_raw(error_buffer(driver), "text") == 60 * b"x"


def test_a_fault_stops_everything_until_a_reset(driver: Driver, commands: ControlCommands) -> None:
    assert not any(error_buffer(driver))
    assert commands.execute("fault a parity in the TPT") == [DRIVEN, "ok"]
    raw = error_buffer(driver)
    assert CATAS.get(raw, "code") != 0
    assert CATAS.get_raw(raw, "text").rstrip(b"\0") == b"parity in the TPT"
    assert commands.execute("status")[0] == "a/1 failed cable in link down"
    driver.post(Opcode.NOP)
    control = driver.read32(bar0.HCR_BASE + 0x18)
    assert control & bar0.HCR_GO  # the command waits for ever
    driver.host.take_interrupts()
    driver.eq_doorbell(driver.comp_eq)
    assert driver.host.take_interrupts() == []
    driver.write32(bar0.RESET_OFFSET, bar0.RESET_VALUE)
    assert not any(error_buffer(driver))
    driver.toggle = 1
    driver.start()
    driver.command(Opcode.INIT_PORT, 0, 1)
    assert driver.port.link_up


def test_peers_of_a_failed_adapter_hear_nothing() -> None:
    pair = Pair()
    pair.connect()
    pair.b.hca.fail("gone")
    pair.post_send(SendOpcode.SEND)
    pair.run(2.0)
    (wc,) = pair.a.completions(pair.qa)
    assert wc.status == 0x15
    assert not pair.b.completions(pair.qb)


def test_what_changes_something_is_in_the_log(driver: Driver, tmp_path: Path) -> None:
    """In front of what it causes; questions are not, and what was refused says so."""
    log = FileLog(tmp_path / "log")
    rules = FaultRules(driver.host.call_later, log)
    commands = ControlCommands({"a": driver.hca}, rules, events=log)
    for line in ("status", "link a down", "drop a kind=frames", "rules", "remove all", "link b up"):
        commands.execute(line)
    log.close()
    events = list(LogReader(tmp_path / "log"))
    assert {(event.kind, event.device) for event in events} == {(Kind.CONTROL, "a")}
    assert [event.text for event in events] == [
        "link a down",
        "drop a kind=frames",
        "drop a kind=frames: refused: there is no link 'a/1', but ",
        "remove all",
        "link b up",
        "link b up: refused: there is no HCA 'b', but a",
    ]


UNRECORDED = "not in the bus log, which has ended"


def test_an_order_that_could_not_be_recorded_says_so(driver: Driver, tmp_path: Path) -> None:
    """Also the first one after the disk was full, which the log's thread still had to find out."""
    log = FileLog(tmp_path / "log", segment=1)
    log.write_behind()
    rules = FaultRules(driver.host.call_later, log)
    commands = ControlCommands({"a": driver.hca}, rules, events=log)
    full = tmp_path / "log" / segment_name(2)
    full.symlink_to("/dev/full")
    assert [commands.execute(f"link a {word}") for word in ("down", "up")] == [["ok"], ["ok"]]
    why = f"{UNRECORDED}: No space left on device; free some space"
    for line in ("link a down", "fault a", "remove all"):
        assert commands.execute(line)[-1] == f"ok: the order is {why}"
    assert commands.execute("status")[-1] == "ok"
    assert commands.execute("mark here") == [f"error: the mark is {why}"]
    log.close()
    full.unlink()
    assert [event.text for event in LogReader(tmp_path / "log")] == ["link a down", "link a up"]


def test_the_user_of_an_order_that_is_not_recorded_is_told(
    driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, loop, path = FileLog(tmp_path / "log"), EventLoop(), tmp_path / "control"
    rules = FaultRules(driver.host.call_later, log)
    commands = ControlCommands({"a": driver.hca}, rules, events=log)
    assert commands.execute("log stop for now") == ["ok"]
    control = ControlSocket(path, commands, loop)
    asked = threading.Thread(target=hardware.tell, args=(path, "link a down"))
    asked.start()
    while asked.is_alive():
        loop.step(0.01)
    control.close()
    loop.close()
    assert capsys.readouterr().err == f"bluebridge: note: the order is {UNRECORDED}: for now\n"


def test_cable_and_link_are_noted_once_for_each_change(
    driver: Driver, commands: ControlCommands
) -> None:
    for line in ("link a down", "link a down", "link a up", "fault a"):
        commands.execute(line)
    notes = [told.text for told in driver.host.told if told.fact is Fact.LINK]
    assert notes == [
        "port 1: cable in, link up",
        "port 1: cable out, link down",
        "port 1: cable in, link up",
        "port 1: cable in, link down",
    ]


def test_a_server_without_an_hca_says_how_to_have_one() -> None:
    lone = ControlCommands({}, FaultRules(EventLoop().call_later, EventLog()))
    for line in ("link a down", "fault a"):
        assert lone.execute(line) == [
            "error: there is no HCA: start the pair with `bluebridge up --hca`"
        ]
