"""Who may set a port's PortInfo, and which fields (InfiniBand vol. 1, 14.2.4 and 14.2.5.6).

An M_Key of zero protects nothing. Otherwise a request without the key is dropped and counted, but
for a Get where the protection bits let it read. The lease bounds how long a manager that died locks
the port: it begins with the first such request, ends when the key is used, and when it is over the
protection bits are cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from bluebridge.device.layout.ib.link import (
    FIRST_GROUP_LID,
    LINK_ACTIVE,
    LINK_ARMED,
    LINK_DOWN,
    LINK_INIT,
    PHYSICAL_DISABLED,
    PHYSICAL_LINK_UP,
    PHYSICAL_POLLING,
)
from bluebridge.device.layout.ib.mad import PORT_INFO, SMP, Method

_FREELY_SET = (
    "mkey", "mkey_lease", "mkey_protect", "link_down_default", "vl_high_limit", "vl_stall_count",
    "hoq_life", "enforcement", "mkey_violations", "pkey_violations", "qkey_violations",
    "subnet_timeout", "init_type", "local_phy_errors", "overrun_errors",
)  # fmt: skip
"""Fields of PortInfo that take any value of a Set."""

_SET_UNLESS_ZERO = ("width_enabled", "speed_enabled", "operational_vls", "neighbour_mtu")
_PHYSICAL = (0, PHYSICAL_POLLING, PHYSICAL_DISABLED, PHYSICAL_LINK_UP)
_END_PORT_ONLY = ("gid_prefix", "lid", "sm_lid", "sm_sl", "lmc")

MOST_VIOLATIONS = 0xFFFF
READ_KEY, READ_REST = 0, 1
"""Protection bits: others may read all, or all but the key; with higher bits, nothing."""


class BadField(Exception):
    """A Set has a value that the port cannot take."""


def check(info: bytes | bytearray, data: bytes, *, end_port: bool) -> None:
    """Raise `BadField` unless a port with PortInfo `info` can take `data`."""
    get = PORT_INFO.get
    state, now = get(data, "state"), get(info, "state")
    allowed = {
        0: True,
        LINK_DOWN: True,
        LINK_ARMED: now in (LINK_INIT, LINK_ARMED),
        LINK_ACTIVE: now in (LINK_ARMED, LINK_ACTIVE),
    }
    if not allowed.get(state, False):
        raise BadField(f"state {state} from {now}")
    if get(data, "physical_state") not in _PHYSICAL:
        raise BadField(f"physical state {get(data, 'physical_state')}")
    if end_port and get(data, "lid") + (1 << get(data, "lmc")) > FIRST_GROUP_LID:
        raise BadField(f"LID {get(data, 'lid'):#x}")
    if get(data, "neighbour_mtu") > get(info, "mtu_cap"):
        raise BadField(f"MTU {get(data, 'neighbour_mtu')}")


def apply(info: bytearray, data: bytes, *, end_port: bool) -> list[str]:
    """Apply the fields of `data` except states; returns which fields of interest changed."""
    get = PORT_INFO.get
    changed = []
    for name in _END_PORT_ONLY if end_port else ():
        if get(info, name) != get(data, name):
            PORT_INFO.set(info, name, get(data, name))
            changed.append(name)
    for name in _FREELY_SET:
        PORT_INFO.set(info, name, get(data, name))
    for name in _SET_UNLESS_ZERO:
        if get(data, name):
            PORT_INFO.set(info, name, get(data, name))
    if end_port and get(data, "client_reregister"):
        changed.append("client_reregister")
    return changed


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
        if self._lease_ends is not None and self._clock() >= self._lease_ends:
            self._lease_ends = None
            PORT_INFO.set(self._info, "mkey_protect", READ_KEY)
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
