"""Describes work queue entries: opcode and segments, read with the tables of device/layout."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx4 import wqe
from bluebridge.device.layout.mlx4.wqe import SendOpcode

_ATOMIC_BYTES = {
    SendOpcode.ATOMIC_CS: 16,
    SendOpcode.ATOMIC_FA: 16,
    SendOpcode.MASKED_ATOMIC_FA: 16,
    SendOpcode.MASKED_ATOMIC_CS: 32,
}
_REMOTE = (
    SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_IMM, SendOpcode.RDMA_READ, *_ATOMIC_BYTES
)  # fmt: skip
_IMMEDIATE = {
    SendOpcode.SEND_IMM: "imm",
    SendOpcode.RDMA_WRITE_IMM: "imm",
    SendOpcode.SEND_INVAL: "inv_rkey",
}
_ALONE = {SendOpcode.LOCAL_INVAL: wqe.LOCAL_INVAL, SendOpcode.FAST_REG_MR: wqe.FAST_REG}
"""The only segment of an entry with these opcodes."""
_KEY_END = 12  # The bytes of LOCAL_INVAL up to its key


def send_entry(data: bytes, length: int, *, datagram: bool = False) -> str:
    """Describe a send WQE, or its beginning; `datagram` is true if it has an address vector."""
    if len(data) < wqe.CTRL.size:
        return f"{length} bytes"
    opcode = wqe.CTRL.get(data, "opcode")
    if opcode not in tuple(SendOpcode):
        return f"opcode {opcode:#x}"
    return " ".join(
        _words(data, send_parts(data, datagram=datagram), wqe.CTRL.get(data, "ds") * 16)
    )


def send_parts(data: bytes, *, datagram: bool = False) -> Iterator[tuple[Struct, int]]:
    """Yield the structures of a send WQE, each with its place, as far as the data goes."""
    if len(data) < wqe.CTRL.size:
        return
    yield wqe.CTRL, 0
    opcode, end = wqe.CTRL.get(data, "opcode"), min(len(data), wqe.CTRL.get(data, "ds") * 16)
    position = wqe.CTRL.size
    if opcode in _ALONE:
        yield _ALONE[SendOpcode(opcode)], position
        return
    if datagram and opcode != SendOpcode.NOP:
        yield wqe.DATAGRAM, position
        position += wqe.DATAGRAM.size
    elif opcode in _REMOTE:
        yield wqe.RADDR, position
        position += wqe.RADDR.size + _ATOMIC_BYTES.get(SendOpcode(opcode), 0)
    while position + 4 <= end:
        count = wqe.DATA.get(data, "byte_count", position)
        if count & wqe.INLINE:
            yield wqe.INLINE_SEG, position
            position = (position + 4 + (count & ~wqe.INLINE) + 15) & ~15
        else:
            yield wqe.DATA, position
            position += wqe.DATA.size


def receive_entry(data: bytes) -> str:
    """Describe the scatter list of a receive WQE, up to its terminator."""
    return " ".join(_words(data, receive_parts(data, 0), len(data))) or "empty"


def receive_parts(data: bytes, position: int) -> Iterator[tuple[Struct, int]]:
    """Yield the scatter list of a receive WQE from `position` on, up to its terminator."""
    while position + wqe.DATA.size <= len(data):
        if wqe.DATA.get(data, "lkey", position) == wqe.INVALID_LKEY:
            return
        yield wqe.DATA, position
        position += wqe.DATA.size


def _words(data: bytes, parts: Iterator[tuple[Struct, int]], end: int) -> Iterator[str]:
    """Yield the descriptions of structures of which all is there; lists of an entry go to `end`."""
    for table, position in parts:
        part = data[position : end if table in (wqe.DATAGRAM, wqe.DATA) else len(data)]
        if len(part) >= (_KEY_END if table is wqe.LOCAL_INVAL else table.size):
            yield from _part(table, part)


def _part(table: Struct, data: bytes) -> Iterator[str]:
    if table is wqe.DATAGRAM:
        gid = wqe.AV.get_raw(table.get_raw(data, "av"), "dgid").hex()
        yield f"av={gid} dmac={table.get_raw(data, 'dmac').hex(':')}"
    get = {item.name: table.get(data, item.name) for item in table if not item.raw}
    if table is wqe.CTRL:
        opcode = SendOpcode(get["opcode"])
        yield opcode.name
        yield from (name for name in ("fence", "solicited") if get[name])
        if get["cqe"] == 3:
            yield "signaled"
        if opcode in _IMMEDIATE:
            yield f"{_IMMEDIATE[opcode]}={get['immediate']:#x}"
    elif table is wqe.DATAGRAM:
        yield f"dqpn={get['dqpn']:#x} qkey={get['qkey']:#x}"
    elif table is wqe.RADDR:
        yield f"raddr={get['va']:#x} rkey={get['rkey']:#x}"
    elif table is wqe.LOCAL_INVAL:
        yield f"key={get['key']:#x}"
    elif table is wqe.FAST_REG:
        yield f"key={get['key']:#x} iova={get['start']:#x} len={get['length']}"
        yield f"pgshift={get['page_shift']}"
    elif table is wqe.INLINE_SEG:
        yield f"inline={get['byte_count']}"
    else:
        yield f"sge={get['va']:#x}+{get['byte_count']} lkey={get['lkey']:#x}"
