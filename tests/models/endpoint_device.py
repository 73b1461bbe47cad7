"""An endpoint with a model that does as its client says: `python -m tests.models.endpoint_device`.

Arguments: SOCKET LOGFOLDER. BAR0, little-endian:

    0x00  64-bit bus address
    0x08  64 bits of guest memory there, read and write; all ones when there is none
    0x10  write: interrupt of that vector        0x14  read or write raises KeyError
    0x18  number of resets                       0x1c  write: read memory after that many ms
    0x20  64 bits that the last delayed read found, zeros before it
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import What
from bluebridge.device.pci.bus import DmaError, HostBus
from bluebridge.device.pci.config_space import Bar, Identity, capabilities
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.pci.loop import EventLoop

VECTORS = 4
NOTHING = b"\xff" * 8


class Puppet:
    """The model."""

    def __init__(self, bus: HostBus) -> None:
        self._bus = bus
        self._address = 0
        self._resets = 0
        self._found = bytes(8)

    def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """A register."""
        if offset == 0x08:
            return self._memory()[:length]
        if offset == 0x14:
            raise KeyError("a fault of the model")
        if offset == 0x18:
            return self._resets.to_bytes(length, "little")
        if offset == 0x20:
            return self._found[:length]
        return bytes(length)

    def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """A register."""
        value = int.from_bytes(data, "little")
        if offset == 0x00:
            self._address = value
        elif offset == 0x08:
            self._bus.write(self._address, data, What.OTHER)
        elif offset == 0x10:
            self._bus.interrupt(value)
        elif offset == 0x14:
            raise KeyError("a fault of the model")
        elif offset == 0x1C:
            self._bus.call_later(value / 1000, self._look)

    def reset(self) -> None:
        """Counts."""
        self._resets += 1
        self._address = 0

    def _look(self) -> None:
        self._found = self._memory()

    def _memory(self) -> bytes:
        try:
            return self._bus.read(self._address, 8, What.OTHER)
        except DmaError:
            return NOTHING


def main() -> None:
    """Serve until SIGTERM."""
    loop, events = EventLoop(), FileLog(Path(sys.argv[2]))
    endpoint = Endpoint(
        "p",
        Path(sys.argv[1]),
        Identity(0x1B36, 0x0100, 0xFF0000, 0x1B36, 1),
        [Bar(0, 4096)],
        capabilities(VECTORS, 0x800, 0xC00),
        VECTORS,
        loop,
        events,
    )
    endpoint.plug(Puppet(endpoint))
    loop.stop_on(signal.SIGTERM)
    print("ready", flush=True)
    loop.run()
    endpoint.close()
    events.close()
    loop.close()


if __name__ == "__main__":
    main()
