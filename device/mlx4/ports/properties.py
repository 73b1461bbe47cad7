"""The properties of a port in QUERY_PORT, its limits and its special QP numbers."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.ports import SET_PORT_IB, LinkMode
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.rdma.ports.infiniband_port import LOG_GIDS, LOG_PKEYS, InfinibandPort
from bluebridge.device.rdma.ports.port import MAX_MTU, Port

TYPE_INFINIBAND: Final = 1
TYPE_ETHERNET: Final = 2
SPEED_40G: Final = 64
SPEED_10G: Final = 1
MAX_VLS: Final = 8
ACCEPTED_VLS: Final = {1: 1, 2: 2, 4: 3, 8: 4}
"""Code of VLCap by the number of virtual lanes software asks for."""
LINK_MODES: Final = int(LinkMode.CR4_40G | LinkMode.CR_10G)


def link_modes(port: Port) -> int:
    """Return the link modes of a port: all there are, unless software has chosen some."""
    modes = port.tables.link_modes
    return LINK_MODES if modes is None else modes


def properties(port: Port) -> dict[str, int]:
    """Return the properties of a port that QUERY_PORT tells."""
    return infiniband(port) if isinstance(port, InfinibandPort) else ethernet(port)


def ethernet(port: Port) -> dict[str, int]:
    """Return the QUERY_PORT properties of a 40 Gb/s Ethernet port with RoCE."""
    return {
        "link_up": int(port.link_up),
        "autoneg": 1,
        "suggested_type": 1,
        "supported_types": TYPE_ETHERNET,
        "ib_mtu": 5,
        "eth_mtu": MAX_MTU,
        "link_speed": SPEED_40G if link_modes(port) & LinkMode.CR4_40G else SPEED_10G,
        "max_width": 3,
        "log_max_gids": 7,
        "log_max_pkeys": 0,
        "log_max_vlans": 7,
        "log_max_macs": 7,
        "max_tc": 8,
        "max_vl": 8,
        "mac": int.from_bytes(port.burned_in, "big"),
    }


def infiniband(port: InfinibandPort) -> dict[str, int]:
    """Return the QUERY_PORT properties of a port on an InfiniBand fabric."""
    return {
        "link_up": int(port.agent.link_up),
        "supported_types": TYPE_INFINIBAND,
        "ib_mtu": port.agent.get("mtu_cap"),
        "max_width": port.agent.get("width_supported"),
        "log_max_gids": LOG_GIDS,
        "log_max_pkeys": LOG_PKEYS,
        "log_max_vlans": 7,
        "log_max_macs": 7,
        "max_vl": MAX_VLS,
    }


def special_base(port: Port) -> int:
    """Return the first of the eight special QP numbers (CONF_SPECIAL_QP); 0 if it is not set."""
    first = port.tables.smi_qpn
    return 0 if first < 0 else first - port.number + 1


def set_special_base(port: Port, base: int) -> None:
    """Give a port its two of the special QP numbers from `base` on; 0 takes them back."""
    tables = port.tables
    tables.smi_qpn = base + port.number - 1 if base else -1
    tables.gsi_qpn = base + port.number + 1 if base else -1


def set_capabilities(port: Port, mailbox: bytes) -> None:
    """Carry out SET_PORT of InfiniBand; an Ethernet port only stores it. Raises `CommandError`.

    Linux sends limits when it starts and capabilities whenever they change
    (`mlx4/port.c: mlx4_SET_PORT`, `ib/main.c: mlx4_ib_SET_PORT`).
    """
    get = SET_PORT_IB.get
    if not isinstance(port, InfinibandPort):
        port.tables.capabilities = get(mailbox, "capabilities")
        return
    if get(mailbox, "change_vl") and get(mailbox, "vl_count") not in ACCEPTED_VLS:
        raise CommandError(Status.BAD_SIZE, f"{get(mailbox, 'vl_count')} virtual lanes")
    if get(mailbox, "change_mtu"):
        if not 1 <= get(mailbox, "mtu") <= 5:
            raise CommandError(Status.BAD_PARAM, f"MTU code {get(mailbox, 'mtu')}")
        port.agent.put("mtu_cap", get(mailbox, "mtu"))
    if get(mailbox, "change_vl"):
        port.agent.put("vl_cap", ACCEPTED_VLS[get(mailbox, "vl_count")])
    if get(mailbox, "reset_qkey_violations"):
        port.agent.put("qkey_violations", 0)
    port.agent.set_capabilities(get(mailbox, "capabilities"))
