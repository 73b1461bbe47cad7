"""Inputs of `sockets` that no wire test is: `python -m tests.fuzz.client_seeds FOLDER`."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.pyvfio_user._messages import DMA_MAP, HEADER, IRQ_SET, VfioUserCommand
from tests.fuzz import served
from tests.fuzz.sockets import FORMS, VERSION, File, Kind
from tests.fuzz.steps import Step, encode

CONFIG = 7
EVENTFD_TRIGGER = 0x24
MSIX = 2
_ACCESS = struct.Struct("<QII")
_STORE_LINES = 32


def _message(command: int, body: bytes = b"", flags: int = 0) -> bytes:
    return HEADER.pack(1, command, HEADER.size + len(body), flags, 0) + body


def _send(data: bytes, kind: int = 0, count: int = 0, client: int = 0) -> Step:
    return Step(Kind.SEND, client, (kind, count), data)


def _read(region: int, offset: int, length: int) -> bytes:
    return _message(VfioUserCommand.REGION_READ, _ACCESS.pack(offset, region, length))


def _store(region: int, offset: int, data: bytes) -> bytes:
    body = _ACCESS.pack(offset, region, len(data)) + data
    return _message(VfioUserCommand.REGION_WRITE, body, flags=0x10)


def _opened(client: int = 0, function: int = 0) -> list[Step]:
    return [
        Step(Kind.OPEN, client, (function,)),
        _send(_message(VfioUserCommand.VERSION, VERSION), client=client),
    ]


def _deaf() -> list[Step]:
    """A client that takes no replies, until its socket is full."""
    return [*_opened(), Step(Kind.READ, 0, (0,)), _send(_read(CONFIG, 0, 4096) * 120)]


def _mapped() -> list[Step]:
    """Memory, interrupts and bus mastering, as QEMU does at first."""
    memory = DMA_MAP.pack(DMA_MAP.size, 3, 0, 0x100000, 0x100000)
    vectors = IRQ_SET.pack(IRQ_SET.size, EVENTFD_TRIGGER, MSIX, 0, 1)
    return [
        *_opened(),
        _send(_message(VfioUserCommand.DMA_MAP, memory), File.SEALED, 1),
        _send(_message(VfioUserCommand.DEVICE_SET_IRQS, vectors), File.EVENT, 1),
        _send(_store(CONFIG, 4, b"\6\0")),
    ]


def _line_stores() -> list[Step]:
    """Stores of a processor that combines writes to the adapter's BlueFlame pages."""
    stores = [_store(2, uar.UAR_AREA_SIZE + 8 * at, bytes(8)) for at in range(_STORE_LINES)]
    return [*_mapped(), _send(b"".join(stores)), _send(b"".join(stores[:4]))]


def _two_clients() -> list[Step]:
    return [*_opened(), *_opened(1), _send(_message(VfioUserCommand.DEVICE_GET_INFO, bytes(16)))]


def _ends(how: int) -> list[Step]:
    return [*_mapped(), Step(Kind.SHUTDOWN, 0, (how,)), _send(_read(0, 0, 4) * 8)]


SEEDS: Sequence[tuple[int, int, list[Step]]] = (
    (served.PROBE, served.STALE, _opened()),
    (served.PROBE, served.VERBOSE, _mapped()),
    *((kind, 0, _deaf()) for kind in (served.PROBE, served.HCAS, served.FIRST_BRIDGES)),
    (served.HCAS, 0, _line_stores()),
    *((kind, 0, _mapped()) for kind in range(served.KINDS)),
    *((served.PUPPET, 0, _ends(how)) for how in range(3)),
    (served.PROBE, 0, _two_clients()),
)
"""What is served, how, and the steps."""


def seeds() -> Iterator[bytes]:
    """The inputs."""
    for kind, how, steps in SEEDS:
        yield bytes((kind, how)) + b"".join(encode(FORMS, step) for step in steps)


if __name__ == "__main__":
    for number, seed in enumerate(seeds()):
        Path(sys.argv[1], f"client{number}").write_bytes(seed)
