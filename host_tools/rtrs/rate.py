"""What a block device of a guest does per second, from its `stat` file in sysfs."""

from __future__ import annotations

import time

from bluebridge.host_tools.machine.vm import Vm

_SECTOR = 512
_MIB = 1 << 20
_READS, _READ_SECTORS, _WRITES, _WRITTEN_SECTORS = 0, 2, 4, 6
"""Fields of the file: Linux Documentation/block/stat.rst."""


class Rate:
    """Since it was asked last."""

    def __init__(self, machine: Vm, device: str) -> None:
        self._machine = machine
        self._file = f"/sys/block/{device.rpartition('/')[2]}/stat"
        self._before = self._read()
        self._when = time.monotonic()

    def _read(self) -> list[int]:
        return [int(word) for word in self._machine.run(f"cat {self._file}").text.split()]

    def line(self) -> str:
        """Requests and MiB per second."""
        now, when = self._read(), time.monotonic()
        seconds = when - self._when
        did = [new - old for new, old in zip(now, self._before, strict=True)]
        self._before, self._when = now, when
        requests = (did[_READS] + did[_WRITES]) / seconds
        mib = (did[_READ_SECTORS] + did[_WRITTEN_SECTORS]) * _SECTOR / _MIB / seconds
        return f"{requests:5.0f} requests/s, {mib:5.1f} MiB/s"
