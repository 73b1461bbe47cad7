"""The way of a frame in the log of two ConnectX-5: one work request from doorbell to interrupts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import pack

import pytest

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.fabric.capture import CapturedFabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx5.wqe import SendOpcode
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.assembler import activities
from bluebridge.host_tools.analyzer.analysis.assembly import transfers
from bluebridge.host_tools.analyzer.transaction import PostedBy, Role, Transfer
from tests.models.logged_host import LoggedHost
from tests.models.mlx5_node import LOG_SQ, Mlx5Node, ethernet, mac_of

PAYLOAD = 100
LAPS = 2
LAST_BLOCK = 0xFFFF


class Wire:
    """Two guests, of which the first sends to the second, with their log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = FileLog(folder)
        switch = LocalFabric()
        self.a, self.b = (self._node(number, switch) for number in (1, 2))
        self.sq, self.rq = self.a.make_sq(), self.b.make_rq()
        self.b.steer(self.b.make_tir(self.rq))
        for node in (self.a, self.b):
            node.open()
            node.events()

    def _node(self, number: int, switch: LocalFabric) -> Mlx5Node:
        name = "ab"[number - 1]
        host = LoggedHost(name, self.log, "connectx5")
        return Mlx5Node(number, CapturedFabric(switch, self.log, name), host)

    def send(self) -> None:
        """Send a frame, and serve what it ends with on both sides."""
        self.b.post_receive(self.rq, address=0x200000)
        assert self.sq.cq is not None
        assert self.rq.cq is not None
        self.a.arm(self.sq.cq)
        self.b.arm(self.rq.cq)
        self.a.send(self.sq, mac_of(2) + mac_of(1) + b"\x88\xb5" + bytes(PAYLOAD))
        for node, queue in ((self.a, self.sq), (self.b, self.rq)):
            node.events()
            node.completions(queue)

    def transfers(self) -> Sequence[Transfer]:
        """Close the log and return its work requests."""
        self.log.close()
        return list(transfers(self.folder))


@pytest.fixture
def wire(tmp_path: Path) -> Wire:
    return Wire(tmp_path)


def test_a_frame_is_one_work_request_from_its_doorbell_to_both_interrupts(wire: Wire) -> None:
    wire.send()
    (frame,) = wire.transfers()
    assert (frame.noun, frame.qpn, frame.opcode) == ("SQ", wire.sq.number, "SEND")
    assert (frame.length, frame.status, frame.peer) == (PAYLOAD + 14, "OK", "b")
    assert frame.posted_by is PostedBy.DOORBELL
    own = [one.role for one in frame.transactions if one.device == "a"]
    assert own == [
        Role.DOORBELL, Role.DOORBELL_RECORD, Role.WQE, Role.PAYLOAD_READ, Role.REQUEST, Role.CQE,
        Role.EQE, Role.INTERRUPT,
    ]  # fmt: skip
    theirs = [one.role for one in frame.transactions if one.device == "b"]
    assert theirs == [
        Role.DOORBELL_RECORD, Role.RECEIVE_WQE, Role.PAYLOAD_WRITE, Role.CQE, Role.EQE,
        Role.INTERRUPT,
    ]  # fmt: skip
    parents = [frame.transactions[one.parent or 0].role for one in frame.transactions[1:4]]
    assert parents == [Role.DOORBELL, Role.DOORBELL, Role.WQE]
    named = [one.purpose for one in frame.transactions if one.purpose.endswith("00")]
    assert named == [
        "doorbell of SQ 0x1000", "WQE read of SQ 0x1000", "payload read of SQ 0x1000",
        "payload write of RQ 0x1000", "CQE of CQ 0x400", "CQE of CQ 0x400",
    ]  # fmt: skip


def test_its_activity_is_named_after_the_queue(wire: Wire) -> None:
    wire.send()
    wire.log.close()
    found: list[Activity] = list(activities(wire.folder))
    (work,) = (each for each in found if each.kind is ActivityKind.WORK_REQUEST)
    assert work.title == f"SEND {PAYLOAD + 14} bytes, SQ {wire.sq.number:#x}"
    assert not [each for each in found if each.title == "doorbell record read"]


def test_entries_of_a_later_lap_are_work_requests_of_their_own(wire: Wire) -> None:
    count = LAPS << LOG_SQ
    for _ in range(count):
        wire.send()
    found = wire.transfers()
    assert [each.index for each in found] == list(range(count))
    assert {each.status for each in found} == {"OK"}


def test_entries_without_a_completion_are_done_with_the_next_that_has_one(wire: Wire) -> None:
    """Also where the 16 bits of a counter begin again."""
    ring = wire.a.adapter.objects.sqs[wire.sq.number].ring
    ring.index = ring.head = wire.sq.posted = LAST_BLOCK
    wire.a.wqe(wire.sq, b"", SendOpcode.NOP, flags=0)
    wire.a.wqe(wire.sq, b"", SendOpcode.NOP)
    wire.a.ring(wire.sq)
    first, second = wire.transfers()
    assert (first.opcode, first.noun, second.status) == ("NOP", "SQ", "OK")
    assert (first.index, second.index) == (LAST_BLOCK, LAST_BLOCK + 1)


def test_a_frame_that_failed_says_why_in_the_words_of_verbs(wire: Wire) -> None:
    wire.a.wqe(wire.sq, ethernet() + pack(">IIQ", 60, 0xBAD00, 0))
    wire.a.wqe(wire.sq, b"", SendOpcode.NOP)
    wire.a.ring(wire.sq)
    failed, flushed = wire.transfers()
    assert (failed.status, flushed.status) == ("LOC_PROT_ERR", "WR_FLUSH_ERR")
    assert flushed.noun == "SQ"
    assert "key 0xbad00 is not valid" in failed.notes[0]
