"""User messages of RTRS as RNBD writes them."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.net import rnbd
from bluebridge.device.layout.net.rnbd import AccessMode, IoFlag, MessageType, Operation


def user_message_text(data: bytes) -> str:
    """`, RNBD ...`; only the type where a message is shorter than its form, empty for no type."""
    kind = int.from_bytes(data[:2], "little")
    form = _FORMS.get(kind)
    if form is None or len(data) < rnbd.HEADER.size:
        return ""
    table, text = form
    name = MessageType(kind).name
    return f", RNBD {name}{text(data)}" if len(data) >= table.size else f", RNBD {name} (short)"


def _session(data: bytes) -> str:
    return f" version={rnbd.SESS_INFO.get(data, 'ver')}"


def _open(data: bytes) -> str:
    name = rnbd.OPEN.get_raw(data, "dev_name").partition(b"\0")[0].decode(errors="replace")
    return f" {name!r} {_name(AccessMode, rnbd.OPEN.get(data, 'access_mode'))}"


def _opened(data: bytes) -> str:
    get = rnbd.OPEN_RSP.get
    return (
        f" device={get(data, 'device_id')} sectors={get(data, 'nsectors')} "
        f"block={get(data, 'logical_block_size')}"
    )


def _io(data: bytes) -> str:
    get = rnbd.IO.get
    word = get(data, "rw")
    flags = "".join(f" {flag.name}" for flag in IoFlag if word & flag)
    return (
        f" {_name(Operation, word & rnbd.OPERATION_MASK)}{flags} device={get(data, 'device_id')} "
        f"sector={get(data, 'sector')} bytes={get(data, 'bi_size')}"
    )


def _close(data: bytes) -> str:
    return f" device={rnbd.CLOSE.get(data, 'device_id')}"


def _name(kind: type[IntEnum], value: int) -> str:
    try:
        return kind(value).name
    except ValueError:
        return f"{value:#x}"


_FORMS: dict[int, tuple[Struct, Callable[[bytes], str]]] = {
    MessageType.SESS_INFO: (rnbd.SESS_INFO, _session),
    MessageType.SESS_INFO_RSP: (rnbd.SESS_INFO, _session),
    MessageType.OPEN: (rnbd.OPEN, _open),
    MessageType.OPEN_RSP: (rnbd.OPEN_RSP, _opened),
    MessageType.IO: (rnbd.IO, _io),
    MessageType.CLOSE: (rnbd.CLOSE, _close),
}
