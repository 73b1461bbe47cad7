"""Reports of ports: properties, statistics and the cable by commands, changes by events.

Linux `mlx4/fw.c: mlx4_QUERY_PORT`, `mlx4/eq.c: mlx4_eq_int`, `mlx4/port.c: mlx4_get_module_info`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.eqe import (
    DATA_OFFSET,
    OWNER_OFFSET,
    PORT_ACTIVE,
    PORT_DOWN,
    PORT_EQE,
    PORT_MNG_EQE,
    PORT_MNG_GUID_INFO,
    PORT_MNG_PKEY_TABLE,
    PORT_MNG_PORT_INFO,
    EventType,
)
from bluebridge.device.layout.mlx4.ports import (
    CABLE_I2C_ADDRESS,
    CABLE_INFO,
    ETH_STATS,
    FLOW_STATS,
    FLOW_STATS_PRIORITIES,
    IF_COUNTER,
    MAX_CABLE_PAGE,
    MAX_CABLE_READ,
    SET_PORT_IB,
    CableStatus,
    LinkMode,
)
from bluebridge.device.mlx4.ports.port_tables import PortTables
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.mlx4.settings.capabilities import MAX_MTU
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.rdma.ports.cable import EEPROM
from bluebridge.device.rdma.ports.counters import FrameCounters, InterfaceCounter, Trouble
from bluebridge.device.rdma.ports.face import PortEvents
from bluebridge.device.rdma.ports.flow_control import FlowControl
from bluebridge.device.rdma.ports.infiniband_port import LOG_GIDS, LOG_PKEYS, InfinibandPort
from bluebridge.device.rdma.ports.port import Port

TYPE_INFINIBAND: Final = 1
TYPE_ETHERNET: Final = 2
SPEED_40G: Final = 64
SPEED_10G: Final = 1
MAX_VLS: Final = 8
ACCEPTED_VLS: Final = {1: 1, 2: 2, 4: 3, 8: 4}
"""Code of VLCap by the number of virtual lanes software asks for."""
LINK_MODES: Final = int(LinkMode.CR4_40G | LinkMode.CR_10G)

_NARROW: Final = 0xFFFFFFFF

ALL_ENTRIES: Final = 0xFFFFFFFF
_PORT_INFO_EVENTS: Final = (
    Change.SM_LID | Change.GID_PREFIX | Change.LID | Change.CLIENT_REREGISTER | Change.SM_SL
)
_TABLE_EVENTS: Final = {Change.PKEYS: PORT_MNG_PKEY_TABLE, Change.GUIDS: PORT_MNG_GUID_INFO}

TROUBLES: Final = {
    Trouble.SEND_LENGTH: "sq_num_lle",
    Trouble.SEND_OPERATION: "sq_num_lqpoe",
    Trouble.SEND_PROTECTION: "sq_num_lpe",
    Trouble.SEND_FLUSHED: "sq_num_wrfe",
    Trouble.SEND_BINDING: "sq_num_mwbe",
    Trouble.SEND_BAD_ANSWER: "sq_num_bre",
    Trouble.SEND_INVALID_REQUEST: "sq_num_rire",
    Trouble.SEND_REMOTE_ACCESS: "sq_num_rae",
    Trouble.SEND_REMOTE_OPERATION: "sq_num_roe",
    Trouble.SEND_RETRIES_USED_UP: "sq_num_tree",
    Trouble.SEND_RNR_RETRIES_USED_UP: "sq_num_rree",
    Trouble.SEQUENCE_NAK_CAME: "sq_num_oos",
    Trouble.RNR_NAK_CAME: "sq_num_rnr",
    Trouble.TIMED_OUT: "sq_num_to",
    Trouble.RECEIVE_LENGTH: "rq_num_lle",
    Trouble.RECEIVE_OPERATION: "rq_num_lqpoe",
    Trouble.RECEIVE_PROTECTION: "rq_num_lpe",
    Trouble.RECEIVE_FLUSHED: "rq_num_wrfe",
    Trouble.SEQUENCE_NAK_SENT: "rq_num_oos",
    Trouble.INVALID_REQUEST_NAK_SENT: "rq_num_rire",
    Trouble.REMOTE_ACCESS_NAK_SENT: "rq_num_rae",
    Trouble.RNR_NAK_SENT: "rq_num_rnr",
    Trouble.DUPLICATE_CAME: "rq_num_dup",
}
"""Names of diagnostic counters as Linux's mlx4 driver has them (`ib/main.c: diag_basic, diag_ext`)
in `/sys/class/infiniband/mlx4_0/ports/1/hw_counters`: `rq_` are of the side that is sent to, `sq_`
of the side that sends."""


def link_modes(tables: PortTables) -> int:
    """Return the link modes of a port: all there are, unless software has chosen some."""
    return LINK_MODES if tables.link_modes is None else tables.link_modes


def properties(port: Port, tables: PortTables) -> dict[str, int]:
    """Return the properties of a port that QUERY_PORT tells."""
    return infiniband(port) if isinstance(port, InfinibandPort) else ethernet(port, tables)


def ethernet(port: Port, tables: PortTables) -> dict[str, int]:
    """Return the QUERY_PORT properties of a 40 Gb/s Ethernet port with RoCE."""
    return {
        "link_up": int(port.link_up), "autoneg": 1, "suggested_type": 1,
        "supported_types": TYPE_ETHERNET, "ib_mtu": 5, "eth_mtu": MAX_MTU,
        "link_speed": SPEED_40G if link_modes(tables) & LinkMode.CR4_40G else SPEED_10G,
        "max_width": 3, "log_max_gids": 7, "log_max_pkeys": 0, "log_max_vlans": 7,
        "log_max_macs": 7, "max_tc": 8, "max_vl": 8, "mac": int.from_bytes(port.burned_in, "big"),
    }  # fmt: skip


def infiniband(port: InfinibandPort) -> dict[str, int]:
    """Return the QUERY_PORT properties of a port on an InfiniBand fabric."""
    return {
        "link_up": int(port.agent.link_up), "supported_types": TYPE_INFINIBAND,
        "ib_mtu": port.agent.get("mtu_cap"), "max_width": port.agent.get("width_supported"),
        "log_max_gids": LOG_GIDS, "log_max_pkeys": LOG_PKEYS, "log_max_vlans": 7, "log_max_macs": 7,
        "max_vl": MAX_VLS,
    }  # fmt: skip


def special_base(port: Port) -> int:
    """Return the first of the eight special QP numbers (CONF_SPECIAL_QP); 0 if it is not set."""
    first = port.tables.smi_qpn
    return 0 if first < 0 else first - port.number + 1


def set_special_base(port: Port, base: int) -> None:
    """Give a port its two of the special QP numbers from `base` on; 0 takes them back."""
    tables = port.tables
    tables.smi_qpn = base + port.number - 1 if base else -1
    tables.gsi_qpn = base + port.number + 1 if base else -1


def set_capabilities(port: Port, tables: PortTables, mailbox: bytes) -> None:
    """Carry out SET_PORT of InfiniBand; an Ethernet port only stores it. Raises `CommandError`.

    Linux sends limits when it starts and capabilities whenever they change
    (`mlx4/port.c: mlx4_SET_PORT`, `ib/main.c: mlx4_ib_SET_PORT`).
    """
    get = SET_PORT_IB.get
    if not isinstance(port, InfinibandPort):
        tables.capabilities = get(mailbox, "capabilities")
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


def ethernet_statistics(counters: FrameCounters) -> bytes:
    """Return the answer to DUMP_ETH_STATS."""
    values: dict[str, int] = {}
    for name, direction in (("rx", counters.rx), ("tx", counters.tx)):
        for quantity in ("frames", "octets", "unicast", "multicast", "broadcast"):
            for where, value in enumerate(getattr(direction, quantity)):
                values[f"{name}_{quantity}_{where}"] = value
        values[f"{name}_dropped"] = min(direction.dropped, _NARROW)
    return bytes(
        ETH_STATS.pack(
            values,
            rx_no_buffer=values["rx_dropped"],
            rx_total_frames=sum(counters.rx.frames) & _NARROW,
        )
    )


def flow_statistics(flow: FlowControl) -> bytes:
    """Return the flow control answer to DUMP_ETH_STATS: the same for all priorities."""
    row = FLOW_STATS.pack(
        rx_pause=flow.rx.frames, rx_pause_duration=int(flow.rx.duration * 1e6),
        rx_pause_transition=flow.rx.transitions, tx_pause=flow.tx.frames,
        tx_pause_duration=int(flow.tx.duration * 1e6), tx_pause_transition=flow.tx.transitions,
    )  # fmt: skip
    return bytes(row) * FLOW_STATS_PRIORITIES


def interface_statistics(counter: InterfaceCounter) -> bytes:
    """Return the answer to QUERY_IF_STAT."""
    return bytes(
        IF_COUNTER.pack(
            interfaces=1,
            rx_frames=counter.rx_packets,
            rx_bytes=counter.rx_bytes,
            tx_frames=counter.tx_packets,
            tx_bytes=counter.tx_bytes,
        )
    )


class CableError(Exception):
    """A cable request is answered with a status instead of bytes."""

    def __init__(self, status: CableStatus) -> None:
        super().__init__(status.name)
        self.status = status


def read_cable(request: bytes, *, present: bool) -> bytes:
    """Answer a CABLE_INFO with the bytes it asks for; raises `CableError`.

    `present` says whether a cable is plugged in.
    """
    get = CABLE_INFO.get
    address, size = get(request, "address"), get(request, "size")
    if not present:
        raise CableError(CableStatus.NOT_CONNECTED)
    if get(request, "i2c_address") != CABLE_I2C_ADDRESS:
        raise CableError(CableStatus.BAD_I2C_ADDRESS)
    if get(request, "page") > MAX_CABLE_PAGE:
        raise CableError(CableStatus.BAD_PAGE)
    if not 0 < size <= MAX_CABLE_READ or address + size > len(EEPROM):
        raise CableError(CableStatus.BAD_ADDRESS)
    answer = bytearray(request[: CABLE_INFO.size])
    CABLE_INFO.set(answer, "data", EEPROM[address : address + size].ljust(MAX_CABLE_READ, b"\0"))
    return bytes(answer)


class PortEventWriter(PortEvents):
    """The writer of the events of all ports of one HCA to event queues."""

    def __init__(self, eqs: EventQueues) -> None:
        self._eqs = eqs

    def link_changed(self, number: int, *, active: bool) -> None:
        """Post a PORT_CHANGE event."""
        event = bytes(PORT_EQE.pack(port=number)[DATA_OFFSET:-4])
        self._eqs.post_async(EventType.PORT_CHANGE, event, PORT_ACTIVE if active else PORT_DOWN)

    def management_changed(self, agent: PortAgent, change: Change) -> None:
        """Post the events of Linux `ib/mad.c: handle_port_mgmt_change_event`."""
        if change & _PORT_INFO_EVENTS:
            self._post(
                PORT_MNG_PORT_INFO, port=agent.number, sm_lid=agent.get("sm_lid"), lid=agent.lid,
                changed=int(change & _PORT_INFO_EVENTS), sm_sl=agent.get("sm_sl"),
                gid_prefix=agent.get("gid_prefix"),
            )  # fmt: skip
        for kind, subtype in _TABLE_EVENTS.items():
            if change & kind:
                self._post(subtype, port=agent.number, changed=ALL_ENTRIES)

    def _post(self, subtype: int, **values: int) -> None:
        event = bytes(PORT_MNG_EQE.pack(values)[DATA_OFFSET:OWNER_OFFSET])
        self._eqs.post_async(EventType.PORT_MNG_CHG, event, subtype)
