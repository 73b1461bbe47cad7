"""Traffic between two HCAs over a wire of packets: the tests of messages, and lost packets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.ports import DIAGNOSTICS
from bluebridge.device.layout.net.roce import BthOpcode
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.verbs import AccessFlags, QpType, SendFlags, SendWr, WcStatus, WrOpcode
from bluebridge.host_tools.analyzer.wire_check.capture import Capture
from bluebridge.host_tools.analyzer.wire_check.causes import Cause, Causes
from bluebridge.host_tools.analyzer.wire_check.checker import Checker
from bluebridge.host_tools.analyzer.wire_check.rules import Seen
from bluebridge.host_tools.lab import hardware
from tests.models.players import PATTERN, SIZE, Player, connected
from tests.models.server import ServerProcess, devices
from tests.wire import test_hca_traffic
from tests.wire.test_verbs_hca import TestHca as Hca

OK = WcStatus.SUCCESS
PACKETS = SIZE // 1024
_WRITES = (BthOpcode.RC_WRITE_FIRST, BthOpcode.RC_WRITE_MIDDLE, BthOpcode.RC_WRITE_LAST)

pair = test_hca_traffic.pair
test_inline = test_hca_traffic.test_inline
test_atomics = test_hca_traffic.test_atomics
test_uc = test_hca_traffic.test_uc
test_signal_all = test_hca_traffic.test_signal_all
test_fence = test_hca_traffic.test_fence
test_more_reads = test_hca_traffic.test_more_reads_than_may_be_outstanding
test_srq_events = test_hca_traffic.test_shared_receive_queue_events


class TestPackets(Hca):
    """The contract of verbs, over packets."""


@pytest.fixture(scope="module")
def hca_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """A server whose HCAs are joined by packets."""
    folder = tmp_path_factory.mktemp("packets")
    with devices(folder, "--wire", "packets") as server:
        yield server, folder


@pytest.fixture
def control(hca_server: tuple[ServerProcess, Path]) -> Iterator[Path]:
    """The control socket; rules end with the test."""
    socket = hca_server[1] / "control"
    yield socket
    hardware.tell(socket, "remove a")


@pytest.mark.parametrize("opcode", [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_lost_packets_are_sent_again(
    contexts: tuple[Context, Context], control: Path, opcode: WrOpcode, direction: str
) -> None:
    """Messages of 64 packets arrive whole, whichever way packets get lost."""
    a, b = connected(*contexts)
    hardware.tell(control, f"drop a direction={direction} count=1")
    hardware.tell(control, f"drop a direction={direction} probability=0.05 seed=5")
    for player in (a, b):
        player.view[:] = bytes(SIZE)
    source, target = (b, a) if opcode is WrOpcode.RDMA_READ else (a, b)
    source.view[:] = PATTERN
    b.receive(1)
    a.send(opcode, [a.sge(0, SIZE)], b)
    (wc,) = a.wait(1, timeout=20)
    assert wc.status is OK
    assert bytes(target.view) == PATTERN
    assert "taken 1," in hardware.tell(control, "rules")[0]


def test_a_wire_that_carries_nothing_ends_the_retries(
    contexts: tuple[Context, Context], control: Path
) -> None:
    a, b = Player(contexts[0]), Player(contexts[1])
    a.connect(b, timeout=8, retry_count=2)
    b.connect(a)
    hardware.tell(control, "drop a direction=out")
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b)
    (wc,) = a.wait(1)
    assert wc.status is WcStatus.RETRY_EXC_ERR


def test_a_damaged_packet_is_refused_and_sent_again(
    contexts: tuple[Context, Context], control: Path
) -> None:
    a, b = connected(*contexts)
    hardware.tell(control, "corrupt a direction=out count=3")
    a.view[:] = PATTERN
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, SIZE)], b)
    a.expect(OK)
    assert bytes(b.view) == PATTERN


def test_a_packet_is_found_by_its_place(contexts: tuple[Context, Context], control: Path) -> None:
    """The fifth packet of the second message, and its first repetition: it is sent three times."""
    a, b = connected(*contexts)
    for number in (1, 2):
        place = f"message=2 psn=+4 transmission={number}"
        hardware.tell(control, f"drop a direction=out opcode=WRITE_MIDDLE {place}")
    a.view[:] = PATTERN
    for _ in range(2):
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, SIZE)], b)
    a.expect(OK, OK)
    assert bytes(b.view) == PATTERN
    taken = [line.partition("taken ")[2][:1] for line in hardware.tell(control, "rules")]
    assert taken == ["1", "1"]


def test_a_flipped_bit_is_noticed_by_nobody(
    contexts: tuple[Context, Context], control: Path
) -> None:
    a, b = connected(*contexts)
    hardware.tell(control, "flip a direction=out count=1")
    a.view[:] = PATTERN
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 512)], b)
    a.expect(OK)
    assert bytes(b.view[:512]) == bytes((PATTERN[0] ^ 1,)) + PATTERN[1:512]


def test_the_counters_of_both_adapters_tell_what_was_lost(
    contexts: tuple[Context, Context], control: Path
) -> None:
    """A gap costs a NAK; a lost answer a time-out, and the request comes again."""
    a, b = connected(*contexts)
    hardware.tell(control, "drop a direction=out psn=+2 transmission=1")
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, SIZE)], b)
    a.expect(OK)
    assert counters(contexts[0]) == {"sq_num_oos": 1}
    assert counters(contexts[1])["rq_num_oos"] == 1
    hardware.tell(control, "remove a")
    hardware.tell(control, "drop a direction=in count=1")
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 8)], b)
    a.expect(OK)
    assert counters(contexts[0]) == {"sq_num_oos": 1, "sq_num_to": 1}
    assert counters(contexts[1])["rq_num_dup"] >= 1


def test_time_outs_are_named_that_the_adapters_counted(
    hca_server: tuple[ServerProcess, Path], contexts: tuple[Context, Context], control: Path
) -> None:
    """Lost answers cost time-outs, or show by the answers behind them; others are NAKs."""
    before = checked(hca_server[1])
    a, b = Player(contexts[0]), Player(contexts[1])
    a.connect(b, timeout=8, retry_count=7)
    b.connect(a, timeout=8, retry_count=7)
    hardware.tell(control, "drop a direction=in count=1 opcode=ACK")
    hardware.tell(control, "drop a direction=in probability=0.1 seed=5")
    hardware.tell(control, "drop a direction=out probability=0.1 seed=6")
    for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ) * 3:
        a.send(opcode, [a.sge(0, SIZE)], b)
        (wc,) = a.wait(1, timeout=20)
        assert wc.status is OK
    counted = counters(contexts[0])["sq_num_to"]
    deadline = time.monotonic() + 10
    while (found := checked(hca_server[1]) - before)[Cause.TIMEOUT] < counted:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert found[Cause.TIMEOUT] == counted
    assert found[Cause.NAK] and found[Cause.IMPLIED] and not found[Cause.UNTOLD]


def checked(folder: Path) -> Counter[Cause]:
    """Why senders went back, by the log; nobody breaks a rule."""
    causes = Causes()
    checker = Checker(causes=causes)
    for seen in Capture(causes).read(folder / "log"):
        assert isinstance(seen, Seen)
        assert list(checker.take(seen)) == []
    return causes.counts


def counters(ctx: Context) -> dict[str, int]:
    """The diagnostic counters of the first port that are not zero, as a driver reads them."""
    answer = ctx.adapter.commands.query(Opcode.DIAG_RPRT, 1, 2)
    return {name: int(n) for name, n in DIAGNOSTICS.unpack(answer).items() if n}


def test_a_lost_packet_of_uc_costs_its_message_only(
    contexts: tuple[Context, Context], control: Path
) -> None:
    a, b = connected(*contexts, QpType.UC)
    a.view[:] = PATTERN
    for number in range(2):
        b.receive(number)
    hardware.tell(control, "drop a direction=out skip=2 count=1")
    for number in range(2):
        a.qp.post_send(SendWr(number, WrOpcode.SEND, [a.sge(0, SIZE // 2)]))
    a.expect(OK, OK)
    (wc,) = b.expect(OK)
    assert (wc.wr_id, wc.byte_len) == (0, SIZE // 2)
    assert bytes(b.view[: SIZE // 2]) == PATTERN[: SIZE // 2]


def test_what_leaves_is_in_the_log_as_frames(
    hca_server: tuple[ServerProcess, Path], contexts: tuple[Context, Context]
) -> None:
    a, b = connected(*contexts)
    a.send(WrOpcode.RDMA_WRITE, [a.sge(0, SIZE)], b)
    a.expect(OK)
    deadline = time.monotonic() + 10
    while _data_packets(hca_server[1] / "log", a.qp.qpn, b.qp.qpn) != PACKETS:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _data_packets(log: Path, *qpns: int) -> int:
    """Count the packets of WRITEs that left for these queue pairs."""
    count = 0
    for event in LogReader(log):
        bth = event.data[54:66]
        if event.kind is Kind.WIRE and event.length > 1024 and len(bth) == 12:
            count += bth[0] in _WRITES and int.from_bytes(bth[5:8], "big") in qpns
    return count


@pytest.mark.parametrize("later", ["", " 3"], ids=["at once", "3 ms later"])
def test_a_read_that_comes_twice_ends_no_connection(
    contexts: tuple[Context, Context], control: Path, later: str
) -> None:
    """The requester has its data and gives the key back, as nvme targets do, as soon as it can."""
    a, b = connected(*contexts)
    hardware.tell(control, f"duplicate a{later} direction=out opcode=READ_REQUEST")
    region, pages = b.pd.alloc_fast_reg_mr(SIZE // 4096), range(b.address, b.address + SIZE, 4096)
    for _ in range(8):
        request = SendWr(1, WrOpcode.REG_MR, mr=region, pages=list(pages), key=region.next_key())
        request.iova, request.length, request.access = b.address, SIZE, AccessFlags.REMOTE_READ
        b.qp.post_send(request)
        b.expect(OK)
        b.receive()
        key, fenced = region.rkey, SendFlags.SIGNALED | SendFlags.FENCE
        a.send(WrOpcode.RDMA_READ, [a.sge()], remote_addr=b.address, rkey=key)
        a.send(WrOpcode.SEND_WITH_INV, [a.sge(0, 16)], flags=fenced, invalidate_rkey=key)
        a.expect(OK, OK)
        b.expect(OK)
    assert "taken 8," in hardware.tell(control, "rules")[0]
