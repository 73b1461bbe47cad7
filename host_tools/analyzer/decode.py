"""Describes events in words, with the tables of `device/layout`."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from bluebridge.device.buslog.reader import Event, LogError
from bluebridge.device.buslog.record import TEXT_KINDS
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.fields import Register, RegisterBlock
from bluebridge.device.layout.mlx4 import bar0, cqe, eqe, uar
from bluebridge.device.layout.mlx4.commands import name_of
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net import cm, ethernet, mad
from bluebridge.device.layout.net.operations import Syndrome
from bluebridge.device.layout.net.roce import GSI_QPN
from bluebridge.device.packets.message import ATOMIC, READ, RELIABLE, XRC
from bluebridge.host_tools.analyzer import bridges
from bluebridge.host_tools.analyzer.bridges import FAMILIES, family, register
from bluebridge.host_tools.analyzer.config_text import config_text
from bluebridge.host_tools.analyzer.wqe_text import receive_entry, send_entry

_CM_SEND = bytes((1, mad.MgmtClass.CM, 2, mad.Method.SEND))
"""First bytes of every CM datagram: base version, class, class version, method."""

WIRE = (What.REQUEST, What.RESPONSE, What.DATAGRAM)
BLOCKS: dict[int, tuple[RegisterBlock, ...]] = {0: bar0.BLOCKS, 2: uar.BLOCKS}


def decode(event: Event) -> str:
    """The event in one line, without a line feed."""
    if event.kind in TEXT_KINDS:
        return event.text
    if event.kind in (Kind.MMIO_READ, Kind.MMIO_WRITE):
        blocks = FAMILIES.get(family(event.device))
        return _register(event) if blocks is None else register(event, blocks)
    if event.kind == Kind.IRQ:
        return f"MSI-X vector {event.address}"
    if event.kind in (Kind.CONFIG_READ, Kind.CONFIG_WRITE):
        return config_text(event.address, event.data, event.length, family(event.device))
    if event.kind == Kind.WIRE and event.what in WIRE:
        return _wire(event)
    if event.kind == Kind.BLUEFLAME:
        page = uar.blueflame_page(event.address)
        return f"BlueFlame page {page}: {_DMA.get(event.what, _other)(event)}"
    return _DMA.get(event.what, _other)(event)


def _wire(event: Event) -> str:
    """A message of the fabric: operation, source, target, PSN and bytes."""
    try:
        message = read_message(event)
    except LogError as error:
        return str(error)
    if event.what == What.DATAGRAM:
        if message.target_qpn <= GSI_QPN:
            return _mad(event)
        head = f"UD qpn={message.source_qpn:#x}"
    elif event.what == What.REQUEST:
        service = "RC" if message.flags & RELIABLE else "UC"
        service = f"XRC srqn={message.srqn:#x}" if message.flags & XRC else service
        head = f"{service} {message.op.name} qpn={message.source_qpn:#x}"
    else:
        data = " with data" if message.flags & (READ | ATOMIC) else ""
        head = f"{_syndrome(message.syndrome)}{data}"
    return f"{head} > qpn={message.target_qpn:#x} psn={message.psn:#x} bytes={message.length}"


def _syndrome(value: int) -> str:
    if value & 0x60 == Syndrome.RNR_NAK:
        return f"RNR_NAK timer={value & 0x1F}"
    return _name(Syndrome, value)


def _find(event: Event) -> tuple[RegisterBlock, int, Register] | None:
    for block in BLOCKS.get(event.bar, ()):
        found = block.find(event.address)
        if found is not None:
            return block, *found
    return None


def _register(event: Event) -> str:
    found = _find(event)
    if found is None:
        return f"BAR{event.bar}+{event.address:#x}"
    block, index, register = found
    place = f"{block.name}[{index}]" if block.stride else block.name
    if event.length * 8 != register.width:
        return f"{place}.{register.name} part={event.data.hex()}"
    value = int.from_bytes(event.data, block.order)
    if block.name == "UAR" and register.name.startswith("eq"):
        eqn = index * 4 + int(register.name[2:])
        return f"EQ {eqn} {register.decode(value).partition(' ')[2]}".strip()
    text = register.decode(value)
    if register.name == "control":
        text += f" ({name_of(value & 0xFFF)})"
    return f"{place}.{text}"


def _cqe(event: Event) -> str:
    data = event.data[-cqe.CQE_SIZE :]  # the second half of a large entry
    if len(data) < cqe.CQE_SIZE:
        return f"CQE of CQ {event.obj:#x}"
    opcode = cqe.CQE.get(data, "opcode")
    qpn = cqe.CQE.get(data, "qpn")
    head = f"CQE cqn={event.obj:#x} qpn={qpn:#x}"
    side = "send" if cqe.CQE.get(data, "is_send") else "receive"
    if opcode == cqe.OPCODE_ERROR:
        syndrome = cqe.ERROR_CQE.get(data, "syndrome")
        return f"{head} {side} ERROR {_name(cqe.CompletionStatus, syndrome)}"
    if side == "send":
        index = cqe.CQE.get(data, "wqe_index")
        return f"{head} send {_name(SendOpcode, opcode)} wqe={index}"
    count = cqe.CQE.get(data, "byte_count")
    return f"{head} receive {_name(cqe.RecvOpcode, opcode)} bytes={count}"


def _eqe(event: Event) -> str:
    if len(event.data) < eqe.EQE_SIZE:
        return f"EQE of EQ {event.obj}"
    kind = eqe.EQE.get(event.data, "type")
    table = eqe.BY_TYPE.get(kind, eqe.EQE)
    own = [
        f"{item.name}={table.get(event.data, item.name):#x}"
        for item in table
        if item.name not in ("type", "subtype", "owner") and not item.raw
    ]
    return f"EQE eqn={event.obj} {_name(eqe.EventType, kind)} {' '.join(own)}".strip()


def _record(event: Event) -> str:
    value = int.from_bytes(event.data[:4], "big")
    return f"doorbell record of {event.obj:#x} = {value:#x}"


def _mad(event: Event) -> str:
    """A management datagram: sent with its headers before it, received with its GRH."""
    start = event.data.find(_CM_SEND)
    if start >= 0 and len(event.data) >= start + mad.MAD.size:
        attribute = mad.MAD.get(event.data, "attr_id", start)
        tid = mad.MAD.get(event.data, "tid", start)
        return f"MAD CM {_name(cm.CmAttribute, attribute)} tid={tid:#x}"
    return f"MAD of QP {event.obj:#x}, {event.length} bytes"


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


def _payload(event: Event) -> str:
    return f"payload qpn={event.obj:#x}"


def _other(event: Event) -> str:
    what = event.what.name.lower().replace("_", " ")
    return f"{what} {event.obj:#x}" if event.obj else what


def _mailbox(event: Event) -> str:
    side = "input" if event.what == What.MAILBOX_IN else "output"
    return f"{side} mailbox of {name_of(event.obj)}"


def _name(kind: type[IntEnum], value: int) -> str:
    try:
        return kind(value).name
    except ValueError:
        return hex(value)


_DMA: dict[What, Callable[[Event], str]] = {
    What.PAYLOAD: _payload,
    What.SQ_WQE: lambda event: f"WQE qpn={event.obj:#x} {send_entry(event.data, event.length)}",
    What.UD_WQE: lambda event: (
        f"WQE qpn={event.obj:#x} {send_entry(event.data, event.length, datagram=True)}"
    ),
    What.RQ_WQE: lambda event: f"RQ WQE qpn={event.obj:#x} {receive_entry(event.data)}",
    What.SRQ_WQE: lambda event: f"SRQ WQE srqn={event.obj:#x} {receive_entry(event.data[16:])}",
    What.CQE: _cqe,
    What.EQE: _eqe,
    What.DOORBELL_RECORD: _record,
    What.MAILBOX_IN: _mailbox,
    What.MAILBOX_OUT: _mailbox,
    What.FRAME: _frame,
    What.MAD: _mad,
    **bridges.DMA,
}
