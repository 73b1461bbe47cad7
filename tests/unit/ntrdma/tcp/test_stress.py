"""Several queue pairs between two processes under random verified work; one process is killed."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bluebridge.guest.ntrdma.engine.transport import Event
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.tcp import TcpTransport
from bluebridge.guest.verbs import QpState, RecvWr, SendWr, Sge, Wc, WcStatus, WrOpcode
from tests.unit.ntrdma.tcp.echo import LANE_BYTES, SLOT_BYTES, Lane, connect_all, told
from tests.unit.ntrdma.tcp.programs import module

LANES = 4
SECONDS = 20.0
OURS = LANE_BYTES // 2
"""Where the bytes begin that are written into the far memory; echoes are in front of them."""
SEND, RECEIVE, WRITE, READ = range(4)


class Traffic:
    """Random work on one lane, in step with a model of the far memory."""

    def __init__(self, lane: Lane, seed: int) -> None:
        self.lane = lane
        self.rounds = 0
        self._random = random.Random(seed)
        self._model = bytearray(LANE_BYTES - OURS)
        self._left: list[int] = []
        self._check: tuple[int, bytes] = 0, b""
        """The bytes that the near memory must hold at an offset when the round is over."""

    @property
    def busy(self) -> bool:
        """Whether a round goes on."""
        return bool(self._left)

    def begin(self) -> None:
        """A write and a read of it in one chain, or a message and its echo."""
        if self._random.random() < 0.5:
            self._echo()
        else:
            self._write_and_read()

    def take(self, wc: Wc) -> None:
        """A completion; with the last of a round memory and model must agree."""
        assert wc.status is WcStatus.SUCCESS, wc
        self._left.remove(wc.wr_id)
        if not self._left:
            self.rounds += 1
            start, data = self._check
            assert bytes(self.lane.memory.view[start : start + len(data)]) == data

    def _echo(self) -> None:
        data = self._random.randbytes(self._random.randint(1, SLOT_BYTES))
        view, length = self.lane.memory.view, len(data)
        view[:length] = data
        self._left, self._check = [SEND, RECEIVE], (SLOT_BYTES, data)
        self.lane.qp.post_recv(RecvWr(RECEIVE, (self._piece(SLOT_BYTES, SLOT_BYTES),)))
        self.lane.qp.post_send(SendWr(SEND, WrOpcode.SEND, (self._piece(0, length),)))

    def _write_and_read(self) -> None:
        data = self._random.randbytes(self._random.randint(1, len(self._model) // 2))
        start = self._random.randrange(len(self._model) - len(data))
        self._model[start : start + len(data)] = data
        self.lane.memory.view[: len(data)] = data
        wider = min(len(self._model), start + len(data) + 1000) - start
        self._left, self._check = [WRITE, READ], (OURS, bytes(self._model[start : start + wider]))
        write = SendWr(WRITE, WrOpcode.RDMA_WRITE, (self._piece(0, len(data)),))
        read = SendWr(READ, WrOpcode.RDMA_READ, (self._piece(OURS, wider),))
        for request in (write, read):
            request.remote_addr = self.lane.far.address + OURS + start
            request.rkey = self.lane.far.rkey
        self.lane.qp.post_send([write, read])

    def _piece(self, offset: int, length: int) -> Sge:
        return Sge(self.lane.memory.address + offset, length, self.lane.mr.lkey)


@pytest.fixture
def near() -> Iterator[tuple[NtrdmaDevice, int]]:
    """The device of this process, and the port that it listens at."""
    transport = TcpTransport("s:127.0.0.1:0")
    with NtrdmaDevice(transport) as device:
        yield device, transport.port


@contextmanager
def peer(port: int, lanes: list[Lane]) -> Iterator[subprocess.Popen[str]]:
    """A process at the other end of `lanes`, which are connected to it."""
    words = f"c:127.0.0.1:{port}", str(len(lanes))
    with module("tests.unit.ntrdma.tcp.echo", *words) as process:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline()
        connect_all(lanes, said)
        process.stdin.write(told(lanes) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        yield process


def run(all_lanes: list[Traffic], rounds: int) -> None:
    """Until each lane has gone through so many rounds more."""
    goals = [traffic.rounds + rounds for traffic in all_lanes]
    deadline = time.monotonic() + SECONDS
    while any(one.rounds < goal or one.busy for one, goal in zip(all_lanes, goals, strict=True)):
        for traffic, goal in zip(all_lanes, goals, strict=True):
            if not traffic.busy and traffic.rounds < goal:
                traffic.begin()
            for wc in traffic.lane.cq.poll():
                traffic.take(wc)
        assert time.monotonic() < deadline, [one.rounds for one in all_lanes]


def test_memories_and_models_agree(near: tuple[NtrdmaDevice, int]) -> None:
    device, port = near
    lanes = [Lane(device) for _ in range(LANES)]
    with peer(port, lanes):
        run([Traffic(lane, seed) for seed, lane in enumerate(lanes)], 1000)


def test_the_peer_is_killed_in_the_midst_of_work(near: tuple[NtrdmaDevice, int]) -> None:
    """Requests under way are flushed, and the next process is found at the same place."""
    device, port = near
    for turn in range(5):
        lanes = [Lane(device) for _ in range(LANES)]
        with peer(port, lanes) as process:
            everything = [Traffic(lane, turn * LANES + n) for n, lane in enumerate(lanes)]
            run(everything, 10)
            for traffic in everything:
                traffic.begin()
            process.kill()
            process.wait()
        for lane in lanes:
            flushed(lane)
            lane.close()
    events = [event for event, _ in device.async_events]
    assert (events.count(Event.PORT_UP), events.count(Event.PORT_DOWN)) == (5, 5)


def flushed(lane: Lane) -> None:
    """Wait for the error state; nothing that was posted goes without a completion."""
    deadline = time.monotonic() + SECONDS
    while lane.qp.query_state() is not QpState.ERR:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    found = lane.cq.poll(64)
    assert len(found) == 2
    allowed = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
    assert all(wc.status in allowed for wc in found), found
