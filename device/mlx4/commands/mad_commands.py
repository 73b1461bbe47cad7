"""The command MAD_IFC, by which drivers ask the port's management and performance agents.

Drivers ask on Ethernet ports too (Linux `ib/main.c: init_node_data`, `ib/mad.c: mlx4_MAD_IFC`).
"""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.fabric.subnet.topology import VENDOR_MELLANOX
from bluebridge.device.layout.ib.link import (
    LINK_ACTIVE,
    LINK_DOWN,
    PHYSICAL_LINK_UP,
    PHYSICAL_POLLING,
)
from bluebridge.device.layout.ib.smp import PortCapability
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.ports import CABLE_INFO_ATTRIBUTE
from bluebridge.device.layout.net.mad import (
    MAD,
    MAD_SIZE,
    NODE_INFO,
    PORT_INFO,
    SMP_DATA_OFFSET,
    STATUS_UNSUPPORTED_ATTRIBUTE,
    Method,
    MgmtClass,
    SmpAttribute,
)
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.ports.reports import CableError, read_cable
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.rdma.ports.infiniband_port import InfinibandPort
from bluebridge.device.rdma.ports.port import Port

GID_PREFIX = 0xFE80 << 48
SMP_DATA_BYTES = 64
CAPABILITIES = (
    PortCapability.CLIENT_REREGISTER
    | PortCapability.CM
    | PortCapability.SYSTEM_GUID
    | PortCapability.SL_MAPPING
)
FIRST_VENDOR_CLASS = 0x09
LAST_VENDOR_CLASS = 0x0A

IGNORE_MKEY = 1
"""Bit of the op modifier: software asks its own port (Linux `ib/mad.c: mlx4_MAD_IFC`)."""
ANSWERED_CLASSES = frozenset(
    (
        MgmtClass.SUBN_LID,
        MgmtClass.SUBN_DIRECTED,
        MgmtClass.PERF,
        FIRST_VENDOR_CLASS,
        LAST_VENDOR_CLASS,
    )
)


def mad_ifc(adapter: Adapter, command: Command) -> bytes:
    """Return the answer to a MAD; one that no agent understands fails (BAD_PKT) without answer."""
    port = adapter.port_of(command.in_modifier & 0xFF)
    request = command.mailbox(MAD_SIZE)
    if isinstance(port, InfinibandPort):
        return port.answer_mad(request, trusted=bool(command.op_modifier & IGNORE_MKEY))
    mgmt_class, method = MAD.get(request, "mgmt_class"), MAD.get(request, "method")
    if mgmt_class not in ANSWERED_CLASSES or method not in (Method.GET, Method.SET):
        raise CommandError(Status.BAD_PKT, f"class {mgmt_class:#x} method {method:#x}")
    response = bytearray(request)
    MAD.set(response, "method", Method.GET_RESP)
    MAD.set(response, "status", 0)
    if mgmt_class in (MgmtClass.SUBN_LID, MgmtClass.SUBN_DIRECTED):
        _subnet(adapter, port, response)
    elif mgmt_class == MgmtClass.PERF:
        response[SMP_DATA_OFFSET:] = bytes(MAD_SIZE - SMP_DATA_OFFSET)
    else:
        MAD.set(response, "status", STATUS_UNSUPPORTED_ATTRIBUTE)
    return bytes(response)


def _subnet(adapter: Adapter, port: Port, response: bytearray) -> None:
    number, end = MAD.get(response, "attr_id"), SMP_DATA_OFFSET + SMP_DATA_BYTES
    attribute = _ATTRIBUTES.get(number)
    try:
        if number == CABLE_INFO_ATTRIBUTE:  # the only one whose data says what is asked for
            data = read_cable(bytes(response[SMP_DATA_OFFSET:end]), present=port.cable)
        elif attribute is not None:
            data = attribute(adapter, port, MAD.get(response, "attr_mod"))
        else:
            MAD.set(response, "status", STATUS_UNSUPPORTED_ATTRIBUTE)
            return
    except CableError as error:
        MAD.set(response, "status", int(error.status))
        return
    response[SMP_DATA_OFFSET:end] = data.ljust(SMP_DATA_BYTES, b"\0")


def _node_description(adapter: Adapter, port: Port, modifier: int) -> bytes:
    return adapter.node.described()


def _node_info(adapter: Adapter, port: Port, modifier: int) -> bytes:
    return bytes(
        NODE_INFO.pack(
            base_version=1,
            class_version=1,
            node_type=1,
            ports=len(adapter.ports),
            system_image_guid=adapter.config.node_guid,
            node_guid=adapter.config.node_guid,
            port_guid=adapter.config.port_guid(port.number),
            partition_cap=1,
            device_id=adapter.config.device_id,
            local_port=port.number,
            vendor_id=VENDOR_MELLANOX,
        )
    )


def _guid_info(adapter: Adapter, port: Port, modifier: int) -> bytes:
    return adapter.config.port_guid(port.number).to_bytes(8, "big") if modifier == 0 else b""


def _pkey_table(adapter: Adapter, port: Port, modifier: int) -> bytes:
    return b"\xff\xff" if modifier & 0xFFFF == 0 else b""


def _zeros(adapter: Adapter, port: Port, modifier: int) -> bytes:
    return b""


def _port_info(adapter: Adapter, port: Port, modifier: int) -> bytes:
    up = port.link_up
    return bytes(
        PORT_INFO.pack(
            gid_prefix=GID_PREFIX,
            capabilities=int(CAPABILITIES),
            local_port=port.number,
            width_enabled=3,
            width_supported=3,
            width_active=2,
            speed_supported=3,
            state=LINK_ACTIVE if up else LINK_DOWN,
            physical_state=PHYSICAL_LINK_UP if up else PHYSICAL_POLLING,
            speed_active=2,  # 4 would make drivers ask Mellanox's own attribute as well
            speed_enabled=3,
            neighbour_mtu=5,
            mtu_cap=5,
            vl_cap=1,
            guid_cap=8,
            subnet_timeout=18,
        )
    )


_ATTRIBUTES: dict[int, Callable[[Adapter, Port, int], bytes]] = {
    SmpAttribute.NODE_DESCRIPTION: _node_description,
    SmpAttribute.NODE_INFO: _node_info,
    SmpAttribute.GUID_INFO: _guid_info,
    SmpAttribute.PORT_INFO: _port_info,
    SmpAttribute.PKEY_TABLE: _pkey_table,
    SmpAttribute.SL2VL_TABLE: _zeros,
    SmpAttribute.VL_ARB_TABLE: _zeros,
}

RULES: dict[int, Rule] = {Opcode.MAD_IFC: Rule(mad_ifc)}
