"""Bytes that others send: packets, control lines, the agent's frames."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.subnet.packets import smp_to
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.net.ip import (
    IPV4,
    IPV6,
    PROTOCOL_UDP,
    ROCE_PORT,
    UDP,
    ones_complement_sum,
)
from bluebridge.device.layout.net.roce import GRH, GRH_NEXT_BTH, ICRC_SIZE
from bluebridge.device.packets import crc
from bluebridge.device.packets.reader import PacketReader, Reason
from bluebridge.device.server.control import ControlCommands
from bluebridge.guest.agent import frames
from tests.fuzz.steps import BytesLeft
from tests.models.hca_driver import Driver
from tests.models.ib_node import Subnet

SESSION = b"session1"
MADS = 6
LONGEST = 4200


@cache
def _commands() -> ControlCommands:
    driver = Driver().start()
    return ControlCommands({"a": driver.hca}, FaultRules(driver.host.call_later, EventLog()))


_WORDS = (
    *("link", "fault", "status", "drop", "delay", "duplicate", "hold", "rules", "release"),
    *("remove", "a", "a/1", "up", "down", "rc", "ud", "1", "0", "every=3", "%", "="),
)


def lines(data: bytes) -> None:
    """Lines of the control socket."""
    left = BytesLeft(data)
    while left:
        words = [left.choice(_WORDS) for _ in range(left.number(1) & 7)]
        words.append(left.take(left.number(1) & 15).decode(errors="replace"))
        line = " ".join(words)
        if "profile" not in line:
            answer = _commands().execute(line)
            assert answer and (answer[-1] == "ok" or answer[-1].startswith("error: "))


def agent(data: bytes) -> None:
    """Frames as the host reads them from a guest: whole ones, parts of them, other bytes."""
    left = BytesLeft(data)
    reader = frames.FrameReader(SESSION)
    while left:
        how, size = left.number(1), left.number(2) & 0x7FF
        sent = left.take(size)
        if how & 1:
            session = SESSION if how & 6 else bytes(8)
            kind = left.choice((*frames.Kind, 0))
            sent = frames.encode(session, kind, left.number(1), sent)
        reader.feed(sent[: left.number(1)] if how >> 3 == 0 else sent)
        while (frame := reader.take()) is not None:
            frame.number()
            with contextlib.suppress(ValueError):
                frame.object()


def mads(data_: bytes) -> None:
    """Management packets of a guest to switch, subnet manager, peer and itself."""
    left = BytesLeft(data_)
    subnet = Subnet()
    for _ in range(MADS):
        if not left:
            break
        payload = bytearray(left.block(256))
        number = left.choice((0, 1))
        payload[0], payload[2] = 1, 1
        payload[1] = left.choice((0x81, 1) if not number else (3, 4, 7, payload[1]))
        target = left.choice((b"\0\1", b"\0\2", b"\0\3", b"\xff\xff"))
        message = smp_to(b"\0\2", target, bytes(payload))
        message.source_qpn = message.target_qpn = number
        message.qkey = 0x80010000 if number else 0
        subnet.a.port.send(message)
        own = bytes(payload)
        subnet.b.try_command(Opcode.MAD_IFC, own, 1, left.number(1) & 3, out=True)
    subnet.assert_in_service()


def packets(data_: bytes) -> None:
    """RoCE packets: any bytes; then any bytes between right network headers and a right ICRC."""
    reader = PacketReader()
    reader.read(data_)
    left = BytesLeft(data_)
    carrier, transport = left.choice((_v1, _ipv4, _ipv6)), left.take(LONGEST)
    reader.refused = dict.fromkeys(Reason, 0)
    packet = reader.read(bytes(12) + carrier(transport))
    if packet is not None:
        packet.headers()
        assert len(packet.payload) < len(transport)
    else:
        found = {reason for reason, count in reader.refused.items() if count}
        assert found <= {Reason.LENGTH, Reason.VERSION, Reason.OPCODE}


def _v1(transport: bytes) -> bytes:
    length = len(transport) + ICRC_SIZE
    grh = bytes(GRH.pack(version=6, payload_length=length, next_header=GRH_NEXT_BTH))
    return b"\x89\x15" + grh + transport + crc.invariant(crc.before_roce_v1(grh), transport)


def _ipv4(transport: bytes) -> bytes:
    ip = IPV4.pack(
        version=4, header_words=5, protocol=PROTOCOL_UDP,
        total_length=IPV4.size + UDP.size + len(transport) + ICRC_SIZE,
    )  # fmt: skip
    IPV4.set(ip, "checksum", ones_complement_sum(bytes(ip)))
    return b"\x08\0" + _v2(bytes(ip), transport)


def _ipv6(transport: bytes) -> bytes:
    length = UDP.size + len(transport) + ICRC_SIZE
    ip = IPV6.pack(version=6, payload_length=length, next_header=PROTOCOL_UDP)
    return b"\x86\xdd" + _v2(bytes(ip), transport)


def _v2(ip: bytes, transport: bytes) -> bytes:
    length = UDP.size + len(transport) + ICRC_SIZE
    udp = bytes(UDP.pack(destination_port=ROCE_PORT, length=length))
    return ip + udp + transport + crc.invariant(crc.before_roce_v2(ip, udp), transport)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "mads": mads,
    "packets": packets,
    "lines": lines,
    "agent": agent,
}
