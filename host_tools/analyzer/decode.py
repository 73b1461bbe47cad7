"""Describes events in words, with the tables of the device's model and those of packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import starmap

from bluebridge.device.buslog.reader import Event, LogError
from bluebridge.device.buslog.wire import packet_of, read_message
from bluebridge.device.layout import pci
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import TELLING
from bluebridge.device.layout.fields import Field, Struct
from bluebridge.device.layout.ib import mad
from bluebridge.device.layout.net import cm, ethernet
from bluebridge.device.layout.net.roce import GSI_QPN
from bluebridge.device.packets.message import ATOMIC, READ, RELIABLE, XRC
from bluebridge.device.packets.reader import WirePacket
from bluebridge.host_tools.analyzer import packets
from bluebridge.host_tools.analyzer.devices.model import named
from bluebridge.host_tools.analyzer.devices.registry import adapter_of, model_of

_MOST = 16
"""Greatest length of an access whose registers are named; longer ones copy the whole space."""

_CM_SEND = bytes((1, mad.MgmtClass.CM, 2, mad.Method.SEND))
"""First bytes of every CM datagram: base version, class, class version, method."""

WIRE = (What.REQUEST, What.RESPONSE, What.DATAGRAM)


@dataclass(frozen=True, slots=True)
class ConfigRegister:
    """A register of configuration space: offset, length in bytes, name and bit fields."""

    offset: int
    width: int
    name: str
    fields: tuple[Field, ...] = ()

    @property
    def end(self) -> int:
        """The offset behind the last byte of the register."""
        return self.offset + self.width

    def text(self, data: bytes) -> str:
        """Return the name of the register and its value, or its fields that are not zero."""
        value = int.from_bytes(data, "little")
        if not self.fields:
            return f"{self.name}={value:#x}"
        values = ((each.name, (value >> each.low) & each.mask) for each in self.fields)
        given = [
            f"{name}={part:#x}" if part > 9 else f"{name}={part}" for name, part in values if part
        ]
        return " ".join([self.name, *given])


def _registers(base: int, title: str, struct: Struct) -> list[ConfigRegister]:
    found = []
    for offset, width in sorted({(item.offset, item.width) for item in struct}):
        items = [item for item in struct if (item.offset, item.width) == (offset, width)]
        whole = [item for item in items if item.low == 0 and item.high == 8 * width - 1]
        parts = tuple(item for item in items if item not in whole)
        name = whole[0].name.replace("_", " ") if whole else pci.REGISTER_NAMES[title, offset]
        # The header's registers are called as `lspci` and the specification do.
        of_header = name.upper() if name.startswith(("bar", "rom")) else name.capitalize()
        name = f"{title} {name}" if title else of_header
        found.append(ConfigRegister(base + offset, width, name, parts))
    return found


REGISTERS: tuple[ConfigRegister, ...] = (
    *_registers(0, "", pci.HEADER),
    *(
        register
        for offset, (title, struct) in pci.CAPABILITIES.items()
        for register in _registers(offset, title, struct)
    ),
    *(
        ConfigRegister(start + offset, width, f"{title} {name}")
        for start, (title, _) in pci.CAPABILITIES.items()
        for (of, offset), (width, name) in pci.PORT_REGISTERS.items()
        if of == title
    ),
)
"""All registers of a function's configuration space, by offset within header and capabilities."""


def config_text(
    offset: int, data: bytes, length: int, more: Iterable[tuple[int, int, str]] = ()
) -> str:
    """Describe an access; `more` are registers of its model alone: offset, bytes, name."""
    if length > _MOST:
        return "whole config space" if not offset else f"config {offset:#x}"
    parts = [
        _part(register, offset, data)
        for register in (*REGISTERS, *starmap(ConfigRegister, more))
        if register.offset < offset + length and register.end > offset
    ]
    where = "extended config space" if offset >= 0x100 else "config"
    return ", ".join(parts) or f"{where} {offset:#x}"


def _part(register: ConfigRegister, offset: int, data: bytes) -> str:
    begin = register.offset - offset
    if begin < 0 or begin + register.width > len(data):
        return f"part of {register.name}"
    return register.text(data[begin : begin + register.width])


def decode(event: Event) -> str:
    """Describe the event in one line, without a line feed."""
    kind = event.kind
    if kind in TELLING:
        return event.text
    if kind is Kind.MMIO_READ or kind is Kind.MMIO_WRITE:
        return model_of(event.device).access(event)
    if kind is Kind.IRQ:
        return f"MSI-X vector {event.address}"
    if kind is Kind.CONFIG_READ or kind is Kind.CONFIG_WRITE:
        more = model_of(event.device).config
        return config_text(event.address, event.data, event.length, more)
    if kind is Kind.WIRE and event.what in WIRE:
        return _wire(event)
    if kind is Kind.WIRE and (packet := packet_of(event)) is not None:
        return _packet(event, packet)
    if kind is Kind.BLUEFLAME:
        page = adapter_of(event.device).page(event.address)
        return f"BlueFlame page {page}: {_transfer(event)}"
    return _transfer(event)


def _transfer(event: Event) -> str:
    words = model_of(event.device).words.get(event.what) or _WORDS.get(event.what, _other)
    return words(event)


def _wire(event: Event) -> str:
    try:
        message = read_message(event)
    except LogError as error:
        return str(error)
    if event.what == What.DATAGRAM:
        if message.target_qpn <= GSI_QPN:
            return _mad(event, event.obj, event.length)
        head = f"UD qpn={message.source_qpn:#x}"
    elif event.what == What.REQUEST:
        service = "RC" if message.flags & RELIABLE else "UC"
        service = f"XRC srqn={message.srqn:#x}" if message.flags & XRC else service
        head = f"{service} {message.op.name} qpn={message.source_qpn:#x}"
    else:
        data = " with data" if message.flags & (READ | ATOMIC) else ""
        head = f"{packets.syndrome_words(message.syndrome)}{data}"
    return f"{head} > qpn={message.target_qpn:#x} psn={message.psn:#x} bytes={message.length}"


def _packet(event: Event, packet: WirePacket) -> str:
    datagram = packet.opcode in packets.DATAGRAMS
    if datagram and packet.target_qpn <= GSI_QPN:
        return _mad(event, packet.target_qpn, packet.end - packet.start)
    return packets.words(packet)


def _mad(event: Event, qpn: int, length: int) -> str:
    """Describe a management datagram, behind its headers or, if it was received, its GRH."""
    start = event.data.find(_CM_SEND)
    if start >= 0 and len(event.data) >= start + mad.MAD.size:
        attribute = mad.MAD.get(event.data, "attr_id", start)
        tid = mad.MAD.get(event.data, "tid", start)
        return f"MAD CM {named(cm.CmAttribute, attribute)} tid={tid:#x}"
    return f"MAD of QP {qpn:#x}, {length} bytes"


def _frame(event: Event) -> str:
    data = event.data
    if len(data) < ethernet.HEADER_SIZE:
        return f"frame of QP {event.obj:#x}"
    kind = ethernet.ETHERNET.get(data, "ethertype")
    smac, dmac = (ethernet.ETHERNET.get_raw(data, name).hex(":") for name in ("smac", "dmac"))
    if kind == ethernet.ETHERTYPE_ARP and len(data) >= ethernet.HEADER_SIZE + ethernet.ARP.size:
        base = ethernet.HEADER_SIZE
        sender, target = (
            ".".join(map(str, ethernet.ARP.get_raw(data, name, base)))
            for name in ("sender_ip", "target_ip")
        )
        if ethernet.ARP.get(data, "operation", base) == ethernet.ARP_REQUEST:
            return f"ARP who has {target}? tell {sender} ({smac})"
        return f"ARP {sender} is at {smac}"
    name = "RoCE" if kind == ethernet.ETHERTYPE_ROCE else f"ethertype {kind:#06x}"
    return f"frame {smac} > {dmac} {name}"


def _other(event: Event) -> str:
    what = event.what.name.lower().replace("_", " ")
    return f"{what} {event.obj:#x}" if event.obj else what


def _window(event: Event) -> str:
    way = "into" if event.kind == Kind.DMA_WRITE else "out of"
    return f"through the peer's window {way} {event.address:#x}"


_WORDS: dict[What, Callable[[Event], str]] = {
    What.PAYLOAD: lambda event: f"payload qpn={event.obj:#x}",
    What.FRAME: _frame,
    What.MAD: lambda event: _mad(event, event.obj, event.length),
    What.COPY: lambda event: f"copy channel={event.obj}",
    What.WINDOW: _window,
    What.MESSAGE: lambda event: f"interrupt message {event.data[::-1].hex()}",
}
"""Functions that describe transfers whose form does not depend on the device model."""
