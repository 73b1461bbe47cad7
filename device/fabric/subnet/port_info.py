"""Set(PortInfo): the fields that a subnet manager may set (InfiniBand vol. 1, 14.2.5.6)."""

from __future__ import annotations

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
from bluebridge.device.layout.net.mad import PORT_INFO

_FREELY_SET = (
    "mkey",
    "mkey_lease",
    "mkey_protect",
    "link_down_default",
    "vl_high_limit",
    "vl_stall_count",
    "hoq_life",
    "enforcement",
    "mkey_violations",
    "pkey_violations",
    "qkey_violations",
    "subnet_timeout",
    "init_type",
    "local_phy_errors",
    "overrun_errors",
)
"""Fields of PortInfo that take any value of a Set."""

_SET_UNLESS_ZERO = ("width_enabled", "speed_enabled", "operational_vls", "neighbour_mtu")
_END_PORT_ONLY = ("gid_prefix", "lid", "sm_lid", "sm_sl", "lmc")


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
    if get(data, "physical_state") not in (
        0,
        PHYSICAL_POLLING,
        PHYSICAL_DISABLED,
        PHYSICAL_LINK_UP,
    ):
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
