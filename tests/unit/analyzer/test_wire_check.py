"""Packets held against the rules: own traffic breaks none, each planted wrong sender is named."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from bluebridge.device.layout.net.roce import (
    PSN_MASK,
    SERVICE_MASK,
    BthOpcode,
    Op,
    Syndrome,
    ack_timeout_us,
)
from bluebridge.device.packets.carriers import Frame
from bluebridge.device.packets.reader import read_packet
from bluebridge.device.packets.transport import TransportPacket, read_transport
from bluebridge.device.rdma.connected.requester import Limits
from bluebridge.host_tools.analyzer.pcap.pcapng import PcapngWriter
from bluebridge.host_tools.analyzer.wire_check import checker as checker_module
from bluebridge.host_tools.analyzer.wire_check.causes import Cause, Causes
from bluebridge.host_tools.analyzer.wire_check.checker import Checker
from bluebridge.host_tools.analyzer.wire_check.rules import TOLERATED, Rule, Seen, tolerance
from bluebridge.host_tools.cli import main
from tests.world.connection import CALM, MTU, READABLE, Link, Weather, lost_once, request_of, run

TIMEOUT = round(ack_timeout_us(Limits().timeout) * 1000)
ANSWERED = (Cause.NAK, Cause.RNR, Cause.IMPLIED)
"""Causes that are answers."""
BTH = 42
"""Where the BTH of a frame begins: behind Ethernet, IPv4 and UDP."""
PRESENT = Weather(absent=0)
STEP = 1000
"""Nanoseconds from a packet to the next."""


def seen(frames: Sequence[bytes], times: Sequence[float] = ()) -> list[Seen]:
    """Frames as the checker takes them."""
    found = []
    for number, frame in enumerate(frames, 1):
        wire = read_packet(frame)
        place = wire.sgid, wire.dgid, wire.target_qpn
        when = round(times[number - 1] * 1e9) if times else number * STEP
        found.append(Seen(number, when, *place, read_transport(wire)))
    return found


def checked(
    packets: Sequence[Seen], interval: int = 0, causes: Causes | None = None
) -> tuple[list[Rule], Checker]:
    """The rules that packets break, and the checker."""
    checker = Checker(interval, causes)
    return [each.rule for packet in packets for each in checker.take(packet)], checker


def traffic(*lost: int) -> list[Seen]:
    """The same as the checker takes it."""
    return seen(traffic_frames(*lost))


def traffic_frames(*lost: int) -> list[bytes]:
    """A write and a send of five packets, a READ of five answers, an atomic; some are lost."""
    link = Link(0, CALM)
    arrive, arrived = link._arrive, count()

    def lose(frames: list[bytes], to_responder: bool) -> None:
        arrive([frame for frame in frames if next(arrived) not in lost], to_responder)

    link._arrive = lose  # type: ignore[method-assign]
    link.remote.receives = 3
    link.post(request_of(0, Op.WRITE, 5 * MTU))
    link.post(request_of(1, Op.SEND, 5 * MTU - 3))
    link.post(request_of(2, Op.READ, 5 * MTU, va=READABLE))
    link.post(request_of(3, Op.FETCH_ADD, 8, va=2 * READABLE - 8, operands=(1, 0)))
    link.clock.run_all()
    assert link.completed == [(number, None) for number in range(4)]
    return link.frames


def test_own_traffic_in_any_weather_breaks_no_rule() -> None:
    """Whoever knows the time-out of the senders is told which retransmissions it caused."""
    timed, named = Counter[Cause](), Counter[bool]()
    for seed in range(60):
        link = run(seed, PRESENT)
        packets = seen(link.frames, link.times)
        broken, checker = checked(packets)
        assert (broken, checker.unpaired) == ([], 0), f"seed {seed}"
        assert not checker.causes.counts[Cause.TIMEOUT], "any other cause is as likely"
        _, checker = checked(packets, causes=Causes(TIMEOUT))
        for back in checker.causes.went_back:
            expired = back.number - 1 in link.expired
            timed[back.cause] += 1
            named[expired] += back.cause is not Cause.UNTOLD
            assert back.cause in (Cause.UNTOLD, *([Cause.TIMEOUT] if expired else ANSWERED))
    assert timed.keys() == set(Cause)
    assert named[True] and named[False] > timed[Cause.UNTOLD]


@pytest.mark.parametrize("seed", range(5))
def test_a_capture_may_begin_anywhere(seed: int) -> None:
    """Whatever was before: messages, READs, retransmissions, NAKs."""
    link = run(seed, PRESENT)
    packets = seen(link.frames, link.times)
    for start in range(len(packets)):
        broken, _ = checked(packets[start:])
        assert broken == [], f"without the first {start} packets"


def test_a_capture_that_lacks_its_beginning_is_judged_after_a_while() -> None:
    """A second without a contradiction: whatever was under way before has been answered."""
    link = Link(0, CALM)
    link.remote.receives = 9
    for number in range(9):
        link.clock.after(number / 4, partial(link.post, request_of(number, Op.SEND, 5 * MTU)))
    link.clock.run_all()
    packets = seen(link.frames, link.times)[2:]
    assert checked(packets)[0] == []
    for number, rules in ((1, []), (-1, [Rule.SKIP])):
        lacking = list(packets)
        without(BthOpcode.RC_SEND_MIDDLE, number)(lacking)
        assert checked(lacking)[0] == rules


def test_a_capture_may_lack_packets_in_its_middle() -> None:
    packets = traffic()
    for start in range(len(packets)):
        for end in range(start, len(packets)):
            checker = Checker()
            broken = [each for packet in packets[:start] for each in checker.take(packet)]
            checker.gap()
            broken += [each for packet in packets[end:] for each in checker.take(packet)]
            assert broken == []


def test_a_lost_answer_of_an_atomic_is_no_time_out() -> None:
    """The answer behind it shows that it is missing."""
    link = Link(0, CALM)
    lost_once(link, 2)
    for number in range(2):
        at = 2 * READABLE - 8
        link.post(request_of(number, Op.FETCH_ADD, 8, va=at, operands=(1, 0)))
    link.clock.run_all()
    for causes in (Causes(), Causes(TIMEOUT)):
        _, checker = checked(seen(link.frames, link.times), causes=causes)
        assert [each.cause for each in checker.causes.went_back] == [Cause.IMPLIED]


def test_an_adapter_that_tells_of_a_time_out_is_believed() -> None:
    packets = [replace(each, function="a") for each in traffic(1)]
    (back,) = checked(packets)[1].causes.went_back
    assert back.cause is Cause.NAK
    causes = Causes()
    causes.tell("a", back.psn, back.time)
    _, checker = checked(packets, causes=causes)
    assert [each.cause for each in checker.causes.went_back] == [Cause.TIMEOUT]


def first_nak(packets: Sequence[Seen]) -> int:
    kinds = [(each.packet.opcode, each.packet.syndrome) for each in packets]
    return kinds.index((BthOpcode.RC_ACK, Syndrome.NAK_PSN))


def test_times_of_a_retransmission() -> None:
    """The NAK names what was lost; detection begins with the first packet behind it."""
    packets = traffic(1)
    broken, checker = checked(packets)
    (back,) = checker.causes.went_back
    nak = packets[first_nak(packets)]
    again = packets[back.number - 1]
    assert (broken, back.cause, back.psn) == ([], Cause.NAK, nak.packet.psn)
    assert (back.detection, back.reaction) == (nak.time - 3 * STEP, again.time - nak.time)


def test_a_queue_pair_that_connects_again_begins_at_another_psn() -> None:
    first, second = traffic(1), traffic(1)
    for at, each in enumerate(second):
        packet = replace(each.packet, psn=each.packet.psn + (1 << 20) & PSN_MASK)
        second[at] = replace(each, packet=packet)
    broken, checker = checked(first + second)
    assert (broken, checker.unpaired, checker.connections) == ([], 0, 2)
    assert [each.cause for each in checker.causes.went_back] == [Cause.NAK] * 2


def place(packets: Sequence[Seen], opcode: BthOpcode, number: int = 0) -> int:
    """Where the packet of an opcode is, the first of them being number 0."""
    return [at for at, each in enumerate(packets) if each.packet.opcode == opcode][number]


def changed(
    opcode: BthOpcode, number: int = 0, /, **values: object
) -> Callable[[list[Seen]], None]:
    """A sender that gives fields of a packet other values; `psn` is added."""

    def change(packets: list[Seen]) -> None:
        at = place(packets, opcode, number)
        packet = packets[at].packet
        moved = {"psn": packet.psn + int(str(values.get("psn", 0))) & PSN_MASK}
        fields = {name: value for name, value in values.items() if name != "psn"}
        packets[at] = replace(packets[at], packet=replace(packet, **moved, **fields))  # type: ignore[arg-type]

    return change


def without(opcode: BthOpcode, number: int = 0) -> Callable[[list[Seen]], None]:
    """A sender that leaves a packet out."""

    def leave_out(packets: list[Seen]) -> None:
        del packets[place(packets, opcode, number)]

    return leave_out


def answer(
    syndrome: int, back: int, opcode: BthOpcode = BthOpcode.RC_ACK
) -> Callable[[list[Seen]], None]:
    """A responder that answers once more behind its last acknowledgement, to a PSN before it."""

    def insert(packets: list[Seen]) -> None:
        at = place(packets, BthOpcode.RC_ACK, -1)
        last = packets[at]
        packet = TransportPacket(
            opcode, last.packet.psn - back, syndrome=syndrome, msn=last.packet.msn
        )
        packets.insert(at + 1, replace(last, packet=packet))

    return insert


def nak_again(packets: list[Seen]) -> None:
    """A responder that reports a lost packet twice."""
    at = first_nak(packets)
    packets.insert(at, packets[at])


def resumed(packets: list[Seen]) -> None:
    """A responder that goes on with an answer as if it had sent what is before."""
    changed(BthOpcode.RC_READ_RESPONSE_FIRST, 1, opcode=BthOpcode.RC_READ_RESPONSE_MIDDLE)(packets)


def congestion(packets: list[Seen]) -> None:
    """A report of congestion to the requester, whose packets were not marked."""
    at = place(packets, BthOpcode.RC_ACK)
    packet = TransportPacket(BthOpcode.CNP & ~SERVICE_MASK, 0, service=BthOpcode.CNP & SERVICE_MASK)
    packets.insert(at, replace(packets[at], packet=packet))


ACK, LAST, WRITE_FIRST, WRITE_MIDDLE = (
    BthOpcode.RC_ACK,
    BthOpcode.RC_WRITE_LAST,
    BthOpcode.RC_WRITE_FIRST,
    BthOpcode.RC_WRITE_MIDDLE,
)
WRONG: list[tuple[str, Rule, Callable[[list[Seen]], None], tuple[int, ...]]] = [
    ("skips a packet", Rule.SKIP, without(WRITE_MIDDLE), ()),
    ("ends no message", Rule.ORDER, changed(LAST, opcode=BthOpcode.RC_WRITE_ONLY), ()),
    ("short middle", Rule.SIZE, changed(WRITE_MIDDLE, payload=bytes(MTU - 4)), ()),
    ("longer than said", Rule.SIZE, changed(WRITE_FIRST, length=4 * MTU), ()),
    ("other bytes again", Rule.REWRITTEN, changed(WRITE_MIDDLE, -1, payload=b"x" * MTU), (1,)),
    ("other length again", Rule.RESENT, changed(WRITE_MIDDLE, -1, payload=bytes(8)), (1,)),
    ("acknowledges the future", Rule.ACK_UNSENT, changed(ACK, -1, psn=40), ()),
    ("acknowledges less", Rule.ACK_BACK, answer(Syndrome.ACK, 4), ()),
    ("loses what was not sent", Rule.NAK_NOTHING, answer(Syndrome.NAK_PSN, -40), ()),
    ("a second NAK", Rule.NAK_TWICE, nak_again, (1,)),
    ("no receive for a write", Rule.RNR_NO_RECEIVE, changed(ACK, 1, psn=-1, syndrome=0x21), ()),
    ("answers no READ", Rule.READ_UNASKED, changed(BthOpcode.RC_READ_RESPONSE_FIRST, psn=-1), ()),
    ("leaves an answer out", Rule.READ_ORDER, without(BthOpcode.RC_READ_RESPONSE_MIDDLE), ()),
    ("an answer in its middle", Rule.READ_RESUMED, resumed, (16,)),
    ("short answer", Rule.READ_SIZE, changed(BthOpcode.RC_READ_RESPONSE_LAST, payload=b"x"), ()),
    ("answers no atomic", Rule.ATOMIC_UNASKED, changed(BthOpcode.RC_ATOMIC_ACK, psn=-1), ()),
    ("MSN goes back", Rule.MSN_BACK, changed(BthOpcode.RC_ATOMIC_ACK, msn=0), ()),
    ("reports no congestion", Rule.CNP_UNMARKED, congestion, ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "plant", "lost"), [each[1:] for each in WRONG], ids=[w[0] for w in WRONG]
)
def test_a_wrong_sender_is_named(
    rule: Rule, plant: Callable[[list[Seen]], None], lost: tuple[int, ...]
) -> None:
    packets = traffic(*lost)
    assert checked(packets)[0] == []
    plant(packets)
    assert rule in checked(packets)[0]


def test_a_nak_behind_an_rnr_nak_and_a_hasty_report() -> None:
    packets = traffic()
    answer(0x21, 0)(packets)
    answer(Syndrome.NAK_PSN, 0)(packets)
    assert Rule.NAK_AFTER_RNR in checked(packets)[0]
    packets = traffic()
    packets[0] = replace(packets[0], marked=True)
    congestion(packets)
    congestion(packets)
    assert checked(packets)[0] == []
    assert checked(packets, 2 * STEP)[0] == [Rule.CNP_EARLY]


def test_memory_on_demand_answers_any_request_by_rnr_nak() -> None:
    """All else holds, where pages of what is read and written are absent, too."""
    broken = [rule for seed in range(20) for rule in checked(seen(run(seed).frames))[0]]
    assert {tolerance(rule, ("odp",), migrated=True) for rule in broken} == {"odp"}


def test_deviations_of_soft_roce_are_tolerated_in_its_own_packets() -> None:
    """An adapter sets MigReq, Soft-RoCE does not."""
    for rule in TOLERATED["rxe"]:
        assert tolerance(rule, ("loss", "rxe"), migrated=False) == "rxe"
        assert tolerance(rule, ("loss", "rxe"), migrated=True) is None
        assert tolerance(rule, (), migrated=False) is None


def test_a_connection_without_answers_takes_none_of_anothers() -> None:
    """PSNs begin at random: those of an unreliable connection may be near a reliable one's."""
    near = [each for each in traffic() if not each.is_answer]
    for at, each in enumerate(near):
        packet = replace(each.packet, psn=each.packet.psn + 1000 & PSN_MASK)
        near[at] = replace(each, packet=packet, qpn=each.qpn + 50)
    broken, checker = checked(near + traffic())
    assert (broken, checker.unpaired) == ([], 0)


def test_an_answer_without_bytes_before_the_path_mtu_is_known() -> None:
    """A READ whose answer begins with an empty FIRST."""
    link = Link(0, CALM)
    link.post(request_of(0, Op.READ, 5 * MTU, va=READABLE))
    link.clock.run_all()
    packets = seen(link.frames)
    changed(BthOpcode.RC_READ_RESPONSE_FIRST, payload=b"")(packets)
    assert checked(packets)[0] == [Rule.READ_SIZE]


def test_what_a_checker_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that is forgotten and goes on is one whose beginning is not known."""
    monkeypatch.setattr(checker_module, "MOST_FLOWS", 3)
    monkeypatch.setattr(checker_module, "MOST_PACKETS", 20)
    packets = traffic(1)
    many = []
    for number in range(6):
        many.append([replace(each, qpn=each.qpn + 10 * number) for each in packets])
    rows = [[each for each in row if not each.is_answer] for row in many]
    mixed = [each for step in zip(*rows, strict=True) for each in step]
    broken, checker = checked(mixed)
    assert broken == []
    assert checker.connections > 6


def test_two_busy_connections_do_not_forget_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways at once, as `ib_write_bw -b`: answers to what is under way belong to it."""
    monkeypatch.setattr(checker_module, "MOST_PACKETS", 8)
    packets = []
    for each in traffic():
        named = replace(each, sender=0 if each.is_answer else each.qpn)
        other = replace(each.packet, psn=each.packet.psn + (1 << 20) & PSN_MASK)
        sender = named.sender and named.sender + 50
        packets += [named, replace(each, qpn=each.qpn + 50, packet=other, sender=sender)]
    broken, checker = checked(packets)
    assert (broken, checker.unpaired, checker.connections) == ([], 0, 2)


def test_a_log_that_names_any_number_of_senders_costs_little_memory() -> None:
    """All of them for one queue pair, as no adapter's log has it."""
    packets, checker = traffic(), Checker()
    request, answer = (
        next(each for each in packets if each.is_answer is kind) for kind in (False, True)
    )
    tracemalloc.start()
    try:
        for sender in range(1, 6000):
            list(checker.take(replace(request, sender=sender)))
            list(checker.take(replace(answer, qpn=sender)))
        assert tracemalloc.get_traced_memory()[0] < 2 << 20
    finally:
        tracemalloc.stop()


# -- the command ----------------------------------------------------------------------------------


def capture(path: Path, frames: Sequence[bytes], most: int = 65535) -> Path:
    """A file as tcpdump writes it, with at most so many bytes of each frame."""
    records = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, most, 1)]
    for number, frame in enumerate(frames):
        records.append(
            struct.pack("<IIII", 1, number, len(frame[:most]), len(frame)) + frame[:most]
        )
    path.write_bytes(b"".join(records))
    return path


def test_the_command_names_packets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = run(1, PRESENT).frames
    good = capture(tmp_path / "good.pcap", frames)
    assert main(["check", "wire", str(good)]) == 0
    assert (
        f"{len(frames)} packets, 1 flows of requests, 0 datagrams: 0 break"
        in capsys.readouterr().out
    )
    damaged = frames[5][:-5] + bytes((frames[5][-5] ^ 1,)) + frames[5][-4:]
    bad = capture(tmp_path / "bad.pcap", [*frames[:5], damaged, *frames[6:]])
    assert main(["check", "wire", str(bad)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("packet 6  0.000005  it is no packet that an adapter takes (its ICRC is")
    assert main(["check", "wire", str(bad), "--json", "--tolerate", "loss"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["rule"] for each in found["violations"]] == ["refused"]


def test_a_packet_that_claims_any_length_costs_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = traffic_frames()[0]
    path = capture(tmp_path / "huge.pcap", [frame, frame[:74]])
    whole = bytearray(path.read_bytes())
    whole[-78:-74] = 0xFFFFFFFF.to_bytes(4, "little")
    path.write_bytes(whole)
    tracemalloc.start()
    try:
        main(["check", "wire", str(path)])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert "of 1 packets the end is missing" in capsys.readouterr().out


def test_a_capture_that_says_what_it_lacks_is_judged_anew_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As dumpcap writes it: option 4 of a packet counts those before it that were dropped."""
    frames = traffic_frames()
    file = io.BytesIO()
    writer = PcapngWriter(file)
    for frame in frames[:1]:
        writer.write("a", 0, Frame(1, frame, len(frame)))
    for dropped in (0, 2):
        path = tmp_path / f"lacks-{dropped}.pcapng"
        option = struct.pack("<HHQI", 4, 8, dropped, 0) if dropped else b""
        blocks = [packet_block(frames[3], option), *map(packet_block, frames[4:])]
        path.write_bytes(file.getvalue() + b"".join(blocks))
        assert main(["check", "wire", str(path)]) == (0 if dropped else 1)
        said = capsys.readouterr().out
        assert ("at 1 places packets are missing" in said) is bool(dropped)
        assert ("x skip" in said) is not dropped


def packet_block(frame: bytes, options: bytes = b"") -> bytes:
    """An enhanced packet block."""
    size = 32 + len(frame) + (-len(frame) & 3) + len(options)
    head = struct.pack("<IIIIIII", 6, size, 0, 0, 0, len(frame), len(frame))
    return head + frame + bytes(-len(frame) & 3) + options + struct.pack("<I", size)


def test_cut_frames_are_read_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = run(1, PRESENT).frames
    assert main(["check", "wire", str(capture(tmp_path / "cut.pcap", frames, 96))]) == 0
    long = sum(len(frame) > 96 for frame in frames)
    assert f"of {long} packets the end is missing" in capsys.readouterr().out


def test_what_is_tolerated_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = traffic_frames(1)
    again = max(at for at, frame in enumerate(frames) if frame[BTH] == WRITE_MIDDLE)
    frames[again] = frames[again][:90] + b"x" * 6 + frames[again][96:]
    path = str(capture(tmp_path / "cut.pcap", frames, 96))
    assert main(["check", "wire", path]) == 1
    assert "[rewritten]" in capsys.readouterr().out
    assert main(["check", "wire", path, "--tolerate", "loss,buffers"]) == 0
    assert "tolerated: 1 x rewritten (buffers: a program wrote" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words", "says"),
    [
        (b"", [], "holds no RoCE packet"),
        (b"\xd4\xc3\xb2\xa1short", [], "the capture is damaged"),
        (b"no capture at all", [], "damaged"),
        (b"", ["--tolerate", "mlx9"], "there is no 'mlx9'; choose from rxe, loss, buffers, odp"),
    ],
)
def test_bad_input_gets_one_line(
    content: bytes, words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "capture"
    path.write_bytes(content)
    assert main(["check", "wire", str(path), *words]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_capture_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its status is not that of packets that break a rule."""
    assert main(["check", "wire", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
