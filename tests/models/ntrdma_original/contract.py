"""This project's NTRDMA and a strict peer of version 0.1 serve each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass

import pytest

from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.guest.ntrdma.connections import CommandTransport
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.verbs import QpState, SendFlags, SendWr, WcFlags, WcOpcode, WcStatus, WrOpcode
from tests.models.ntrdma_original import queue_pair as original_qp
from tests.models.ntrdma_original.port import Original
from tests.models.ntrdma_original.queue_pair import Completion, Pair, Region
from tests.models.verbs.player import ALL, PATTERN, SIZE, Player

BYTES = bytes.fromhex("01020304")
NUMBER = 0x01020304
"""The same immediate as a user of verbs here gives it, and as it lies in memory there."""
Start = Callable[[int], AbstractContextManager[Original]]


@dataclass
class Ends:
    """Our player, and the original's queue pair with registered memory of as many bytes."""

    device: NtrdmaDevice
    ours: Player
    theirs: Original
    pair: Pair
    region: Region
    view: memoryview

    @property
    def here(self) -> tuple[int, int, int]:
        """The original's memory as a piece."""
        return self.region.address, SIZE, self.region.key

    @property
    def there(self) -> tuple[int, int]:
        """Our memory as the original names it."""
        return self.ours.address, self.ours.mr.rkey

    def connect(self) -> None:
        """Both queue pairs to the state in which they send."""
        ours = self.ours
        ours.qp.modify_init(ALL)
        ours.qp.modify_rtr(self.device.peer(), self.pair.key)
        ours.qp.modify_rts()
        self.theirs.connect(self.pair, ours.qp.qpn)

    def met_again(self, before: int) -> None:
        """Wait until the ports have met once more."""
        self.theirs.until(lambda: self.theirs.meetings > before, "the next meeting")

    def post(self, opcode: WrOpcode, length: int, offset: int = 0, imm: int = 0) -> None:
        """Our request, into or out of the original's memory at `offset`."""
        request = SendWr(77, opcode, [self.ours.sge(0, length)], SendFlags.SIGNALED, imm=imm)
        request.remote_addr, request.rkey = self.region.address + offset, self.region.key
        self.ours.qp.post_send(request)

    def completions(self, count: int) -> list[Completion]:
        """The original's next completions."""
        waiting = self.pair.completions
        self.theirs.until(lambda: len(waiting) >= count, f"{count} completions")
        with self.theirs.lock:
            return [waiting.popleft() for _ in range(count)]

    def receive_here(self, handle: int) -> None:
        """Post our receive and wait until the original has it: it has no answer for "not yet"."""
        self.ours.receive(handle)
        twin = self.theirs.twins[self.ours.qp.qpn]
        self.theirs.until(lambda: twin.has_receive, "a receive")

    def receive_there(self, handle: int, length: int = SIZE) -> None:
        """Post a receive of the original."""
        with self.theirs.lock:
            piece = self.region.address, length, self.region.key
            self.pair.post_receive(handle, [piece])
            self.theirs.back_end.flush()


def ends_of(device: NtrdmaDevice, theirs: Original) -> Ends:
    """Connect a queue pair of each; their memories hold different bytes."""
    theirs.wait_ready()
    device.wait_ready(20.0)
    memory = theirs.back_end.map(SIZE)
    region = theirs.register((memory.address, SIZE), pieces=3)
    pair = theirs.create_pair()
    theirs.wait_ready()
    ends = Ends(device, Player(device), theirs, pair, region, memory.view)
    ends.connect()
    ends.ours.view[:] = PATTERN
    ends.view[:] = PATTERN[::-1]
    return ends


class OriginalContract:
    """`device` is ours, `start` makes the peer; its rings may begin anywhere."""

    @pytest.fixture(params=[0, 29], ids=["new", "running"])
    def first(self, request: pytest.FixtureRequest) -> int:
        """The index at which the peer's rings begin."""
        number: int = request.param
        return number

    @pytest.fixture
    def ends(self, device: NtrdmaDevice, start: Start, first: int) -> Iterator[Ends]:
        """Both sides, connected; the peer's rings begin at 0, or stand somewhere."""
        with start(first) as theirs:
            yield ends_of(device, theirs)

    def test_sends(self, ends: Ends) -> None:
        """Messages both ways, with and without an immediate, for more than two laps of a ring."""
        for turn in range(20):
            ends.receive_there(turn)
            ends.post(WrOpcode.SEND, 100 + turn)
            ends.ours.expect(WcStatus.SUCCESS)
            (got,) = ends.completions(1)
            assert got == (turn, original_qp.RECV, original_qp.OK, 100 + turn, bytes(4))
            assert bytes(ends.view[: 100 + turn]) == PATTERN[: 100 + turn]
            ends.view[:] = PATTERN[::-1]
            ends.receive_here(turn)
            address, _, key = ends.here
            piece = address + 7, 50 + turn, key
            ends.theirs.send(ends.pair, original_qp.SEND, [piece])
            (wc,) = ends.ours.wait()
            assert (wc.wr_id, wc.status, wc.byte_len) == (turn, WcStatus.SUCCESS, 50 + turn)
            assert bytes(ends.ours.view[: 50 + turn]) == PATTERN[::-1][7 : 57 + turn]
            assert ends.completions(1)[0].status == original_qp.OK
            ends.ours.view[:] = PATTERN

    @pytest.mark.parametrize(
        ("opcode", "op"),
        [
            (WrOpcode.SEND_WITH_IMM, original_qp.SEND_IMM),
            (WrOpcode.RDMA_WRITE_WITH_IMM, original_qp.WRITE_IMM),
        ],
    )
    def test_immediates_cross_as_bytes_in_network_order(
        self, ends: Ends, opcode: WrOpcode, op: int
    ) -> None:
        """0x01020304 here is 01 02 03 04 in the original's memory, and back."""
        ends.receive_there(1)
        ends.post(opcode, 64, imm=NUMBER)
        ends.ours.expect(WcStatus.SUCCESS)
        assert ends.completions(1)[0].immediate == BYTES
        ends.receive_here(2)
        piece = ends.region.address, 64, ends.region.key
        ends.theirs.send(ends.pair, op, [piece], ends.there, BYTES)
        (wc,) = ends.ours.wait()
        assert (wc.status, wc.imm, wc.flags) == (WcStatus.SUCCESS, NUMBER, WcFlags.WITH_IMM)
        assert ends.completions(1)[0].status == original_qp.OK

    def test_writes(self, ends: Ends) -> None:
        """Each into the other's memory, over the ends of its segments."""
        ends.post(WrOpcode.RDMA_WRITE, SIZE // 2, 1000)
        ends.ours.expect(WcStatus.SUCCESS)
        assert bytes(ends.view[1000 : 1000 + SIZE // 2]) == PATTERN[: SIZE // 2]
        assert bytes(ends.view[:1000]) == PATTERN[::-1][:1000]
        ends.view[:] = PATTERN[::-1]
        address, _, key = ends.here
        pieces = [(address, 30000, key), (address + 40000, 5000, key)]
        ends.theirs.send(ends.pair, original_qp.WRITE, pieces, ends.there)
        assert ends.completions(1)[0].status == original_qp.OK
        wanted = PATTERN[::-1][:30000] + PATTERN[::-1][40000:45000]
        assert bytes(ends.ours.view[:35000]) == wanted
        assert bytes(ends.ours.view[35000:]) == PATTERN[35000:]

    def test_reads(self, ends: Ends) -> None:
        """Each out of the other's memory; the entry of a READ has no length of its own."""
        ends.post(WrOpcode.RDMA_READ, SIZE // 2, 300)
        (wc,) = ends.ours.wait()
        assert (wc.status, wc.opcode, wc.byte_len) == (
            WcStatus.SUCCESS,
            WcOpcode.RDMA_READ,
            SIZE // 2,
        )
        assert bytes(ends.ours.view[: SIZE // 2]) == PATTERN[::-1][300 : 300 + SIZE // 2]
        ends.ours.view[:] = PATTERN
        address, _, key = ends.here
        pieces = [(address + 5, 1000, key), (address + 30000, 2000, key)]
        ends.theirs.send(ends.pair, original_qp.READ, pieces, ends.there)
        (got,) = ends.completions(1)
        assert (got.status, got.length) == (original_qp.OK, 3000)
        assert bytes(ends.view[5:1005]) == PATTERN[:1000]
        assert bytes(ends.view[30000:32000]) == PATTERN[1000:3000]

    def test_what_may_not_be_done_ends_in_a_status(self, ends: Ends) -> None:
        """A range that a region has not, at either side, and a receive that nobody has posted."""
        ends.post(WrOpcode.RDMA_WRITE, 64, SIZE)
        (wc,) = ends.ours.wait()
        assert wc.status is WcStatus.REM_ACCESS_ERR
        ends.theirs.until(lambda: ends.pair.failed, "the queue pair's end")
        assert bytes(ends.view) == PATTERN[::-1]

    def test_the_originals_mistakes_come_back_to_it(self, ends: Ends) -> None:
        """The original writes beyond our region, then it goes on aborting."""
        address, _, key = ends.here
        for _ in range(2):
            where = ends.there[0] + SIZE, ends.there[1]
            ends.theirs.send(ends.pair, original_qp.READ, [(address, 64, key)], where)
        first = ends.completions(1)[0]
        assert first.status == original_qp.RANGE
        ends.ours.wait_state(QpState.ERR)
        assert bytes(ends.view) == PATTERN[::-1]

    @pytest.mark.brief("running")
    def test_it_parts_and_comes_back_with_running_rings(self, ends: Ends) -> None:
        """Its indices go on where they stood; ours begin anew, as it is told."""
        for turn in range(5):
            ends.post(WrOpcode.RDMA_WRITE, 64)
            ends.ours.expect(WcStatus.SUCCESS)
            ends.theirs.send(ends.pair, original_qp.WRITE, [ends.here], ends.there)
            assert ends.completions(1)[0].status == original_qp.OK
            met = ends.theirs.meetings
            ends.theirs.quiesce()
            ends.ours.wait_state(QpState.ERR)
            ends.met_again(met)
            ends.theirs.wait_ready()
            ends.device.wait_ready(20.0)
            ends.ours.qp.modify_reset()
            ends.connect()
            ends.receive_there(turn)
            ends.post(WrOpcode.SEND, 10)
            ends.ours.expect(WcStatus.SUCCESS)
            assert ends.completions(1)[0].handle == turn

    @pytest.mark.parametrize("ip", ["10.9.2.1", "fd00:9:2::1"])
    def test_it_is_never_sent_what_it_does_not_know(self, ends: Ends, ip: str) -> None:
        """Who asks for a connection is told at once that there is none with this peer."""
        with (
            closing(CommandTransport(ends.device, ipv4_gid(bytes((10, 9, 2, 2))))) as transport,
            pytest.raises(OSError, match=r"version 0\.1 of NTRDMA"),
        ):
            transport.resolve(ip)
        assert max(ends.theirs.ops) <= 14 and ends.theirs.broken is None
