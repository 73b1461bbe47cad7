"""Describes entries of queues of a ConnectX-5, with the tables of device/layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5 import wqe
from bluebridge.device.layout.mlx5.cqe import CQE, CQE_SIZE, ERROR_CQE, CqeOpcode, Syndrome
from bluebridge.host_tools.analyzer.devices import model

ERRORS = (CqeOpcode.REQUEST_ERROR, CqeOpcode.RESPONSE_ERROR)
_FRAMES = (wqe.SendOpcode.SEND, wqe.SendOpcode.LSO)
_ATOMICS = tuple(opcode for opcode in wqe.SendOpcode if opcode.name.startswith("ATOMIC_"))
_REMOTE = (
    wqe.SendOpcode.RDMA_WRITE, wqe.SendOpcode.RDMA_WRITE_IMM, wqe.SendOpcode.RDMA_READ, *_ATOMICS,
)  # fmt: skip
_OPERANDS = tuple(wqe.OPERANDS.values())
_WITH_WORD = (
    wqe.SendOpcode.SEND_IMM, wqe.SendOpcode.RDMA_WRITE_IMM, wqe.SendOpcode.SEND_INVAL,
)  # fmt: skip
"""Operations whose control segment has immediate data or a key."""


def send_words(event: Event) -> str:
    """Describe an entry of an SQ, or its beginning."""
    data, who = event.data, f"WQE sqn={event.obj:#x}"
    if len(data) < wqe.CTRL.size:
        return who
    words = [model.named(wqe.SendOpcode, wqe.CTRL.get(data, "opcode"))]
    if wqe.CTRL.get(data, "cqe") & 2:
        words.append("signaled")
    words.append(f"index={wqe.CTRL.get(data, 'index')}")
    for table, place in send_parts(data):
        if table is wqe.ETHERNET:
            words += _ethernet(data, place)
        elif table is wqe.DATA:
            words += _data(data, place)
    return " ".join((who, *words))


def _ethernet(data: bytes, place: int) -> Iterator[str]:
    get = wqe.ETHERNET.get
    checksums = get(data, "checksums", place)
    if checksums & (wqe.EthernetFlag.L3 | wqe.EthernetFlag.L4):
        yield "csum"
    if mss := get(data, "mss", place):
        yield f"mss={mss}"
    if get(data, "insert_vlan", place):
        yield f"vlan={get(data, 'vlan', place):#x}"
    elif size := get(data, "inline_size", place):
        yield f"headers={size}"


def _data(data: bytes, place: int) -> Iterator[str]:
    count = wqe.DATA.get(data, "byte_count", place)
    yield f"inline={count & ~wqe.INLINE}" if count & wqe.INLINE else _buffer(data, place)


def _buffer(data: bytes, place: int) -> str:
    address, key = wqe.DATA.get(data, "va", place), wqe.DATA.get(data, "lkey", place)
    count = wqe.DATA.get(data, "byte_count", place) & ~wqe.INLINE
    return f"sge={address:#x}+{count} lkey={key:#x}"


def send_parts(data: bytes) -> Iterator[tuple[Struct, int]]:
    """Yield the structures of an entry of an SQ, each with its place, as far as the data goes."""
    if len(data) < wqe.CTRL.size:
        return
    yield wqe.CTRL, 0
    end = min(len(data), wqe.CTRL.get(data, "ds") * wqe.SEGMENT_BYTES)
    position = wqe.CTRL.size
    if wqe.CTRL.get(data, "opcode") in _FRAMES and position + wqe.ETHERNET.size <= end:
        yield wqe.ETHERNET, position
        size = 0
        if not wqe.ETHERNET.get(data, "insert_vlan", position):
            size = max(0, wqe.ETHERNET.get(data, "inline_size", position) - wqe.INLINE_HEADER_START)
        position += wqe.ETHERNET.size + -(-size // wqe.SEGMENT_BYTES) * wqe.SEGMENT_BYTES
    yield from _data_parts(data, position, end)


def _data_parts(data: bytes, position: int, end: int) -> Iterator[tuple[Struct, int]]:
    while position + wqe.DATA.size <= end:
        yield wqe.DATA, position
        count = wqe.DATA.get(data, "byte_count", position)
        length = 4 + (count & ~wqe.INLINE) if count & wqe.INLINE else wqe.DATA.size
        position += -(-length // wqe.SEGMENT_BYTES) * wqe.SEGMENT_BYTES


def message_words(event: Event) -> str:
    """Describe a send entry of a queue pair, or its beginning."""
    data, who = event.data, f"WQE qpn={event.obj:#x}"
    if len(data) < wqe.CTRL.size:
        return who
    get = wqe.CTRL.get
    words = [model.named(wqe.SendOpcode, get(data, "opcode"))]
    if get(data, "cqe") & 2:
        words.append("signaled")
    words += [word for word in ("fence", "solicited") if get(data, word)]
    if get(data, "opcode") in _WITH_WORD:
        words.append(f"immediate={get(data, 'immediate'):#x}")
    words.append(f"index={get(data, 'index')}")
    for table, place in message_parts(data, datagram=event.what is What.UD_WQE):
        if table is wqe.DATAGRAM:
            to, source = (table.get(data, name, place) for name in ("qpn", "source"))
            words.append(f"to={to:#x} address={source} gid={_gid(data, place)}")
        elif table is wqe.XRC:
            words.append(f"srqn={table.get(data, 'srqn', place):#x}")
        elif table is wqe.REMOTE:
            address, key = table.get(data, "va", place), table.get(data, "rkey", place)
            words.append(f"raddr={address:#x} rkey={key:#x}")
        elif table in _OPERANDS:
            words += [f"{each.name}={table.get(data, each.name, place):#x}" for each in table]
        elif table is wqe.UMR:
            words.append(f"mkey={get(data, 'immediate'):#x}")
            words.append(f"octowords={table.get(data, 'octowords', place)}")
        elif table is wqe.DATA:
            words += _data(data, place)
    return " ".join((who, *words))


def _gid(data: bytes, place: int) -> str:
    address = IPv6Address(wqe.DATAGRAM.get_raw(data, "rgid", place))
    mapped = address.ipv4_mapped
    return str(address) if mapped is None else f"::ffff:{mapped}"


def message_parts(data: bytes, *, datagram: bool) -> Iterator[tuple[Struct, int]]:
    """Yield the structures of a send entry of a queue pair, as far as the data goes.

    Nothing in an entry says that its queue pair is one of XRC; the segment is known by its zeros,
    which no key and no address in its place has.
    """
    if len(data) < wqe.CTRL.size:
        return
    yield wqe.CTRL, 0
    opcode = wqe.CTRL.get(data, "opcode")
    end = min(len(data), wqe.CTRL.get(data, "ds") * wqe.SEGMENT_BYTES)
    position, tables = wqe.CTRL.size, [wqe.DATAGRAM] if datagram else []
    first = data[position : position + wqe.XRC.size]
    if not datagram and any(first[1:4]) and not first[0] and not any(first[4:]):
        tables.append(wqe.XRC)
    if opcode in _REMOTE:
        tables.append(wqe.REMOTE)
    if opcode == wqe.SendOpcode.UMR:
        tables.append(wqe.UMR)
    operands = wqe.OPERANDS.get((opcode, wqe.CTRL.get(data, "opcode_modifier")))
    if operands is not None:
        tables.append(operands)
    for table in tables:
        if position + table.size > end:
            return
        yield table, position
        position += table.size
    if opcode != wqe.SendOpcode.UMR:  # the log has no more of one that changes a key
        yield from _data_parts(data, position, end)


def list_words(event: Event) -> str:
    """Describe the list of a key: its blocks, as far as they are there, if they repeat."""
    data, words = event.data, [f"page list {event.obj:#x}"]
    for table, place in list_parts(data):
        if table is wqe.REPEAT:
            words.append(f"repeats={table.get(data, 'repeats', place)}")
            continue
        address, count, key, stride = (
            table.get(data, name, place) for name in ("address", "byte_count", "key", "stride")
        )
        words.append(f"part={address:#x}+{count} key={key:#x} stride={stride}")
    return " ".join(words)


def list_parts(data: bytes) -> Iterator[tuple[Struct, int]]:
    """Yield the structures of a list whose blocks repeat.

    Nothing tells lists of pages and of parts apart, but no address of a page looks like this head.
    """
    size = wqe.STRIDED.size
    if len(data) < size or wqe.REPEAT.get(data, "operation") != wqe.REPEAT_BLOCK:
        return
    yield wqe.REPEAT, 0
    for number in range(1, min(wqe.REPEAT.get(data, "entries"), len(data) // size - 1) + 1):
        yield wqe.STRIDED, number * size


def shared_words(event: Event) -> str:
    """Describe an entry of a shared receive queue: the next one, and its buffers."""
    data, who = event.data, f"SRQ WQE srqn={event.obj:#x}"
    if len(data) < wqe.SEGMENT_BYTES:
        return who
    following = int.from_bytes(data[2:4], "big")
    lists = [_buffer(data, place) for _, place in receive_parts(data) if place]
    return " ".join((who, f"next={following}", *lists))


def receive_words(event: Event) -> str:
    """Describe entries of an RQ that were read together: the buffers of the first ones.

    The highest bit of a length asks for padding there (Linux `MLX5_HW_START_PADDING`).
    """
    data = event.data
    lists = [_buffer(data, place) for _, place in receive_parts(data)]
    return " ".join((f"RQ WQE rqn={event.obj:#x}", *lists))


def receive_parts(data: bytes) -> Iterator[tuple[Struct, int]]:
    """Yield the data segments of entries of an RQ that name memory."""
    for position in range(0, len(data) - wqe.DATA.size + 1, wqe.DATA.size):
        if wqe.DATA.get(data, "byte_count", position):
            yield wqe.DATA, position


def completion_words(event: Event) -> str:
    """Describe a completion entry."""
    data, who = event.data, f"CQE cqn={event.obj:#x}"
    if len(data) < CQE_SIZE:
        return who
    code = CQE.get(data, "opcode")
    if code in ERRORS:
        side = "send" if code == CqeOpcode.REQUEST_ERROR else "receive"
        why = model.named(Syndrome, ERROR_CQE.get(data, "syndrome"))
        number, counter = ERROR_CQE.get(data, "qpn"), ERROR_CQE.get(data, "wqe_counter")
        return f"{who} {side} {why} number={number:#x} wqe={counter}"
    counter = CQE.get(data, "wqe_counter")
    if code == CqeOpcode.REQUEST:
        operation = model.named(wqe.SendOpcode, CQE.get(data, "wqe_opcode"))
        return f"{who} sqn={CQE.get(data, 'qpn'):#x} send {operation} wqe={counter}"
    words = [f"receive bytes={CQE.get(data, 'length')}", f"wqe={counter}"]
    if CQE.get(data, "vlan_present"):
        words.append(f"vlan={CQE.get(data, 'vlan'):#x}")
    if value := CQE.get(data, "hash"):
        words.append(f"hash={value:#x}")
    return " ".join((who, *words))


def record_words(event: Event) -> str:
    """Describe the counter or index in a doorbell record."""
    value = int.from_bytes(event.data[:4], "big")
    return f"doorbell record of {event.obj:#x} = {value:#x}"


def completion_parts(data: bytes) -> Iterable[tuple[Struct, int]]:
    """Return the structure of a completion entry."""
    if len(data) < CQE_SIZE:
        return ()
    return ((ERROR_CQE if CQE.get(data, "opcode") in ERRORS else CQE, 0),)
