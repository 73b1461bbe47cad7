"""Describes work queue entries: opcode and segments, read with the tables of device/layout."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx4 import wqe

_REMOTE = frozenset(
    (
        wqe.SendOpcode.RDMA_WRITE,
        wqe.SendOpcode.RDMA_WRITE_IMM,
        wqe.SendOpcode.RDMA_READ,
        wqe.SendOpcode.ATOMIC_CS,
        wqe.SendOpcode.ATOMIC_FA,
        wqe.SendOpcode.MASKED_ATOMIC_CS,
        wqe.SendOpcode.MASKED_ATOMIC_FA,
    )
)
_ATOMIC_BYTES = {
    wqe.SendOpcode.ATOMIC_CS: 16,
    wqe.SendOpcode.ATOMIC_FA: 16,
    wqe.SendOpcode.MASKED_ATOMIC_FA: 16,
    wqe.SendOpcode.MASKED_ATOMIC_CS: 32,
}
_IMMEDIATE = {
    wqe.SendOpcode.SEND_IMM: "imm",
    wqe.SendOpcode.RDMA_WRITE_IMM: "imm",
    wqe.SendOpcode.SEND_INVAL: "inv_rkey",
}


def send_entry(data: bytes, length: int, *, datagram: bool = False) -> str:
    """Describe a send WQE of `length` bytes; `data` may have only its beginning.

    A WQE does not contain its transport: `datagram` is true if it has an address vector.
    """
    if len(data) < wqe.CTRL.size:
        return f"{length} bytes"
    return " ".join(_send_words(data, datagram))


def _send_words(data: bytes, datagram: bool) -> Iterator[str]:
    get = wqe.CTRL.get
    code = get(data, "opcode")
    try:
        opcode = wqe.SendOpcode(code)
    except ValueError:
        yield f"opcode {code:#x}"
        return
    yield opcode.name
    yield from (name for name in ("fence", "solicited") if get(data, name))
    if get(data, "cqe") == 3:
        yield "signaled"
    if opcode in _IMMEDIATE:
        yield f"{_IMMEDIATE[opcode]}={get(data, 'immediate'):#x}"
    end = min(len(data), get(data, "ds") * 16)
    position = wqe.CTRL.size
    if opcode == wqe.SendOpcode.LOCAL_INVAL:
        yield f"key={int.from_bytes(data[position + 8 : position + 12], 'big'):#x}"
        return
    if opcode == wqe.SendOpcode.FAST_REG_MR:
        if position + wqe.FAST_REG.size <= len(data):
            yield _fast_register(data[position:])
        return
    if datagram and opcode != wqe.SendOpcode.NOP:
        if position + wqe.DATAGRAM.size <= end:
            yield _address(data[position:])
        position += wqe.DATAGRAM.size
    elif opcode in _REMOTE and position + 16 <= len(data):
        yield f"raddr={wqe.RADDR.get(data, 'va', position):#x}"
        yield f"rkey={wqe.RADDR.get(data, 'rkey', position):#x}"
        position += 16 + _ATOMIC_BYTES.get(opcode, 0)
    yield from _segments(data, position, end)


def _address(data: bytes) -> str:
    get, raw = wqe.DATAGRAM.get, wqe.DATAGRAM.get_raw
    gid = wqe.AV.get_raw(raw(data, "av"), "dgid").hex()
    mac = raw(data, "dmac").hex(":")
    return f"av={gid} dmac={mac} dqpn={get(data, 'dqpn'):#x} qkey={get(data, 'qkey'):#x}"


def _fast_register(data: bytes) -> str:
    get = wqe.FAST_REG.get
    return (
        f"key={get(data, 'key'):#x} iova={get(data, 'start'):#x} "
        f"len={get(data, 'length')} pgshift={get(data, 'page_shift')}"
    )


def _segments(data: bytes, position: int, end: int) -> Iterator[str]:
    while position + 4 <= end:
        count = wqe.DATA.get(data, "byte_count", position)
        if count & wqe.INLINE:
            count &= ~wqe.INLINE
            yield f"inline={count}"
            position = (position + 4 + count + 15) & ~15
            continue
        if position + wqe.DATA.size > end:
            return
        lkey = wqe.DATA.get(data, "lkey", position)
        yield f"sge={wqe.DATA.get(data, 'va', position):#x}+{count} lkey={lkey:#x}"
        position += wqe.DATA.size


def send_parts(data: bytes, *, datagram: bool = False) -> Iterator[tuple[Struct, int]]:
    """Yield the structures of a send WQE, each with its place, as far as the data goes."""
    if len(data) < wqe.CTRL.size:
        return
    yield wqe.CTRL, 0
    opcode, end = wqe.CTRL.get(data, "opcode"), min(len(data), wqe.CTRL.get(data, "ds") * 16)
    position = wqe.CTRL.size
    if opcode == wqe.SendOpcode.LOCAL_INVAL:
        yield wqe.LOCAL_INVAL, position
        return
    if opcode == wqe.SendOpcode.FAST_REG_MR:
        yield wqe.FAST_REG, position
        return
    if datagram and opcode != wqe.SendOpcode.NOP:
        yield wqe.DATAGRAM, position
        position += wqe.DATAGRAM.size
    elif opcode in _REMOTE:
        yield wqe.RADDR, position
        position += 16 + _ATOMIC_BYTES.get(wqe.SendOpcode(opcode), 0)
    while position + 4 <= end:
        count = wqe.DATA.get(data, "byte_count", position)
        if count & wqe.INLINE:
            yield wqe.INLINE_SEG, position
            position = (position + 4 + (count & ~wqe.INLINE) + 15) & ~15
        else:
            yield wqe.DATA, position
            position += wqe.DATA.size


def receive_parts(data: bytes, position: int) -> Iterator[tuple[Struct, int]]:
    """Yield the scatter list of a receive WQE from `position` on, up to its terminator."""
    while position + wqe.DATA.size <= len(data):
        if wqe.DATA.get(data, "lkey", position) == wqe.INVALID_LKEY:
            return
        yield wqe.DATA, position
        position += wqe.DATA.size


def receive_entry(data: bytes) -> str:
    """Describe the scatter list of a receive WQE, up to its terminator."""
    words = []
    for position in range(0, len(data) - wqe.DATA.size + 1, wqe.DATA.size):
        lkey = wqe.DATA.get(data, "lkey", position)
        if lkey == wqe.INVALID_LKEY:
            break
        count = wqe.DATA.get(data, "byte_count", position)
        words.append(f"sge={wqe.DATA.get(data, 'va', position):#x}+{count} lkey={lkey:#x}")
    return " ".join(words) or "empty"
