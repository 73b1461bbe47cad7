"""The M_Key of a port, which protects what subnet management sets there.

Rules: InfiniBand vol. 1, 14.2.4. A key of zero protects nothing. Otherwise a request without the
key is dropped and counted, but for a Get where the protection bits let it read. The lease bounds
how long a manager that died locks the port: it begins with the first such request, ends when the
key is used, and when it is over the protection bits are cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from bluebridge.device.layout.ib.smp import SMP
from bluebridge.device.layout.net.mad import PORT_INFO, Method

MOST_VIOLATIONS = 0xFFFF
READ_KEY, READ_REST = 0, 1
"""Protection bits: others may read all, or all but the key; with higher bits, nothing."""


class ManagementKey:
    """The M_Key check of one port with PortInfo `info`; `clock` returns seconds."""

    def __init__(self, info: bytearray, clock: Callable[[], float] = monotonic) -> None:
        self._info = info
        self._clock = clock
        self._lease_ends: float | None = None

    def admits(self, request: bytes | bytearray) -> bool:
        """Return True if an SMP may do what it asks for; count and note one that may not."""
        info = self._info
        key = PORT_INFO.get(info, "mkey")
        if not key or SMP.get(request, "mkey") == key:
            self._lease_ends = None
            return True
        self._expire()
        if SMP.get(request, "method") == Method.GET and self._protection <= READ_REST:
            return True
        violations = min(PORT_INFO.get(info, "mkey_violations") + 1, MOST_VIOLATIONS)
        PORT_INFO.set(info, "mkey_violations", violations)
        lease = PORT_INFO.get(info, "mkey_lease")
        if lease and self._lease_ends is None:
            self._lease_ends = self._clock() + lease
        return False

    def shows_key(self, request: bytes | bytearray) -> bool:
        """Return True if an answer to `request` may contain the key."""
        given = SMP.get(request, "mkey") == PORT_INFO.get(self._info, "mkey")
        return given or self._protection == READ_KEY

    @property
    def _protection(self) -> int:
        return PORT_INFO.get(self._info, "mkey_protect")

    def _expire(self) -> None:
        if self._lease_ends is not None and self._clock() >= self._lease_ends:
            self._lease_ends = None
            PORT_INFO.set(self._info, "mkey_protect", READ_KEY)
