"""RoCE packets of a log, in frames of any form: words, fields and conditions say what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.wire import packet_of, read_message
from bluebridge.device.fabric.messages import Message, Response
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.net.roce import Op, Syndrome
from bluebridge.device.packets.carriers import frames_of
from bluebridge.host_tools.analyzer.analysis import Transfer, packets
from bluebridge.host_tools.analyzer.conditions import Condition
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.event_lines import named_fields
from bluebridge.host_tools.analyzer.packets import is_answer
from tests.models import capture_traffic
from tests.models.capture_traffic import ADDRESS, MTU, QPN_A, QPN_B, RKEY

FORMS = [name for name in capture_traffic.routes() if name.startswith("v")]


def frames(folder: Path, *messages: Message, kept: int = 1 << 20) -> list[Event]:
    """The packets of messages, as records of frames of which so many bytes are kept."""
    capture_traffic.write_log(folder, messages)
    found: list[Event] = []
    for event in LogReader(folder):
        for each in frames_of(read_message(event)):
            found.append(
                Event(
                    len(found),
                    event.time,
                    "a",
                    Kind.WIRE,
                    0,
                    What.FRAME,
                    0,
                    0,
                    each.length,
                    each.data[:kept],
                )
            )
    return found


@pytest.mark.parametrize("form", FORMS)
def test_requests_and_answers_of_each_form_are_described(form: str, tmp_path: Path) -> None:
    route = capture_traffic.routes()[form]
    events = frames(
        tmp_path,
        capture_traffic.request(route, Op.SEND, 5),
        capture_traffic.request(route, Op.WRITE, 2 * MTU),
        capture_traffic.request(route, Op.READ, 2 * MTU),
        Response(route, QPN_A, 5, Syndrome.ACK, 3),
        Response(route, QPN_A, 6, Syndrome.NAK_PSN, 3),
        Response(route, QPN_A, 7, Syndrome.NAK_REMOTE_ACCESS, 3),
        Response(route, QPN_A, 8, Syndrome.RNR_NAK | 14, 3),
        kept=128,
    )
    target, reth = f"> qpn={QPN_B:#x}", f"va={ADDRESS:#x} rkey={RKEY:#x} length={2 * MTU}"
    assert [decode(each) for each in events] == [
        f"RC SEND_ONLY {target} psn=0xfffffe bytes=5",
        f"RC WRITE_FIRST {target} psn=0xfffffe bytes={MTU} {reth}",
        f"RC WRITE_LAST {target} psn=0xffffff bytes={MTU}",
        f"RC READ_REQUEST {target} psn=0xfffffe bytes=0 {reth}",
        f"ACK > qpn={QPN_A:#x} psn=0x5 bytes=0 msn=3",
        f"NAK_PSN > qpn={QPN_A:#x} psn=0x6 bytes=0 msn=3",
        f"NAK_REMOTE_ACCESS > qpn={QPN_A:#x} psn=0x7 bytes=0 msn=3",
        f"RNR_NAK timer=14 > qpn={QPN_A:#x} psn=0x8 bytes=0 msn=3",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_headers_are_fields(form: str, tmp_path: Path) -> None:
    route = capture_traffic.routes()[form]
    write, nak = frames(
        tmp_path,
        capture_traffic.request(route, Op.WRITE, 8),
        Response(route, QPN_A, 6, Syndrome.NAK_PSN, 3),
        kept=128,
    )
    values = {f"{each.table.name}.{each.name}": each.value for each in named_fields(write)}
    network = "GRH" if form.startswith("v1") else "IPV6" if form == "v2-ipv6" else "IPV4"
    assert network in {name.partition(".")[0].upper() for name in values}
    assert int(values["BTH.dest_qpn"], 0) == QPN_B
    assert int(values["RETH.va"], 0) == ADDRESS
    fields = [each for each in named_fields(nak) if each.table.name == "AETH"]
    assert {each.name: each.value for each in fields} == {"syndrome": "0x60", "msn": "3"}
    place = fields[0].offset
    assert nak.data[place : place + 4] == bytes((0x60, 0, 0, 3))


def test_conditions_know_packets(tmp_path: Path) -> None:
    route = capture_traffic.routes()["v2-ipv4"]
    events = frames(
        tmp_path,
        capture_traffic.request(route, Op.SEND_IMM, 2 * MTU),
        Response(route, QPN_A, 5, Syndrome.ACK, 3),
        Response(route, QPN_A, 8, Syndrome.RNR_NAK | 14, 3),
    )

    def matching(text: str) -> list[int]:
        condition = Condition.parse(text)
        return [each.number for each in events if condition.matches(each, decode)]

    assert matching("syndrome!=0") == [3]
    assert matching("syndrome=RNR_NAK") == [3]
    assert matching("syndrome=ACK") == [2]
    assert matching("opcode=SEND_WITH_IMM") == [1]
    assert matching("opcode=SEND_FIRST") == [0]
    assert matching("psn=0xffffff") == [1]


def test_datagrams_and_other_frames(tmp_path: Path) -> None:
    """A MAD is called by its message; a frame that is no RoCE packet stays a frame."""
    route = capture_traffic.routes()["v2-ipv4"]
    events = frames(tmp_path, *capture_traffic.datagrams(route), capture_traffic.arp(), kept=128)
    said = [decode(each) for each in events]
    assert said[1].startswith(f"UD SEND_ONLY_IMM qpn={QPN_A:#x} > qpn={QPN_B:#x} psn=0x7 bytes=5")
    assert said[3].startswith("MAD CM RTU tid=0x1234")
    assert said[4].startswith("ARP who has")
    broken = events[0]
    broken.data = broken.data[:42]
    broken.length = 42
    assert packet_of(broken) is None and decode(broken).startswith("frame 00:02")


def test_what_is_sent_again_adds_no_bytes(tmp_path: Path) -> None:
    """A SEND of two packets of which both leave twice is over when its last one is answered."""
    route = capture_traffic.routes()["v2-ipv4"]
    first, last, early, late = frames(
        tmp_path,
        capture_traffic.request(route, Op.SEND, MTU + 3),
        Response(route, QPN_A, 0xFFFFFE, Syndrome.ACK, 0),
        Response(route, QPN_A, 0xFFFFFF, Syndrome.ACK, 1),
    )
    transfer = Transfer("a", QPN_A, 0)
    over = [take(transfer, each) for each in (first, early, last, first, early, last, late)]
    assert (transfer.length, transfer.psn, transfer.peer_qpn) == (MTU + 3, 0xFFFFFE, QPN_B)
    assert over == [False] * 6 + [True]


def take(transfer: Transfer, event: Event) -> bool:
    packet = packet_of(event)
    assert packet is not None
    answers = is_answer(packet)
    return packets.ends(transfer, packet) if answers else packets.sent(transfer, packet)
