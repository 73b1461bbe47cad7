"""The command MAD_IFC, by which drivers ask the port's management and performance agents.

Drivers ask on Ethernet ports too (Linux `ib/main.c: init_node_data`, `ib/mad.c: mlx4_MAD_IFC`).
"""

from __future__ import annotations

from bluebridge.device.fabric.subnet.topology import VENDOR_MELLANOX
from bluebridge.device.layout.ib.link import (
    LINK_ACTIVE,
    LINK_DOWN,
    PHYSICAL_LINK_UP,
    PHYSICAL_POLLING,
)
from bluebridge.device.layout.ib.mad import (
    MAD,
    MAD_SIZE,
    NODE_INFO,
    PORT_INFO,
    SMP_DATA_OFFSET,
    Method,
    MgmtClass,
    PortCapability,
    SmpAttribute,
    SmpStatus,
)
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.ports import CABLE_INFO_ATTRIBUTE
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
IGNORE_MKEY = 1
"""Bit of the op modifier: software asks its own port (Linux `ib/mad.c: mlx4_MAD_IFC`)."""
SUBNET_CLASSES = (MgmtClass.SUBN_LID, MgmtClass.SUBN_DIRECTED)
VENDOR_CLASSES = (0x09, 0x0A)


def mad_ifc(adapter: Adapter, command: Command) -> bytes:
    """Return the answer to a MAD; one that no agent understands fails (BAD_PKT) without answer."""
    port = adapter.port_of(command.in_modifier & 0xFF)
    request = command.mailbox(MAD_SIZE)
    if isinstance(port, InfinibandPort):
        return port.answer_mad(request, trusted=bool(command.op_modifier & IGNORE_MKEY))
    mgmt_class, method = MAD.get(request, "mgmt_class"), MAD.get(request, "method")
    answered = (*SUBNET_CLASSES, MgmtClass.PERF, *VENDOR_CLASSES)
    if mgmt_class not in answered or method not in (Method.GET, Method.SET):
        raise CommandError(Status.BAD_PKT, f"class {mgmt_class:#x} method {method:#x}")
    response = bytearray(request)
    MAD.set(response, "method", Method.GET_RESP)
    MAD.set(response, "status", 0)
    if mgmt_class in SUBNET_CLASSES:
        _subnet(adapter, port, response)
    elif mgmt_class == MgmtClass.PERF:
        response[SMP_DATA_OFFSET:] = bytes(MAD_SIZE - SMP_DATA_OFFSET)
    else:
        MAD.set(response, "status", SmpStatus.BAD_ATTRIBUTE)
    return bytes(response)


def _subnet(adapter: Adapter, port: Port, response: bytearray) -> None:
    end = SMP_DATA_OFFSET + SMP_DATA_BYTES
    data: bytes | None
    try:
        if MAD.get(response, "attr_id") == CABLE_INFO_ATTRIBUTE:  # its data say what is asked for
            data = read_cable(bytes(response[SMP_DATA_OFFSET:end]), present=port.cable)
        else:
            data = _attribute(adapter, port, response)
    except CableError as error:
        MAD.set(response, "status", int(error.status))
        return
    if data is None:
        MAD.set(response, "status", SmpStatus.BAD_ATTRIBUTE)
    else:
        response[SMP_DATA_OFFSET:end] = data.ljust(SMP_DATA_BYTES, b"\0")


def _attribute(adapter: Adapter, port: Port, request: bytearray) -> bytes | None:
    """Return the data of an attribute, without zeros at the end; None for one that is unknown."""
    modifier = MAD.get(request, "attr_mod")
    match MAD.get(request, "attr_id"):
        case SmpAttribute.NODE_DESCRIPTION:
            return adapter.node.described()
        case SmpAttribute.NODE_INFO:
            return _node_info(adapter, port)
        case SmpAttribute.PORT_INFO:
            return _port_info(port)
        case SmpAttribute.GUID_INFO:
            return b"" if modifier else adapter.config.port_guid(port.number).to_bytes(8, "big")
        case SmpAttribute.PKEY_TABLE:
            return b"" if modifier & 0xFFFF else b"\xff\xff"
        case SmpAttribute.SL2VL_TABLE | SmpAttribute.VL_ARB_TABLE:
            return b""
    return None


def _node_info(adapter: Adapter, port: Port) -> bytes:
    return bytes(
        NODE_INFO.pack(
            base_version=1, class_version=1, node_type=1, ports=len(adapter.ports),
            system_image_guid=adapter.config.node_guid, node_guid=adapter.config.node_guid,
            port_guid=adapter.config.port_guid(port.number), partition_cap=1,
            device_id=adapter.config.device_id, local_port=port.number, vendor_id=VENDOR_MELLANOX,
        )
    )  # fmt: skip


def _port_info(port: Port) -> bytes:
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


RULES: dict[int, Rule] = {Opcode.MAD_IFC: Rule(mad_ifc)}
