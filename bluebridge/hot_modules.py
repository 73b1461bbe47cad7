"""Which modules are compiled: those that a profile of the device finds in the path of messages.

A class and those it is made of are compiled together or not at all: so whole packages, where most
of their modules are in that path.
"""

from __future__ import annotations

from bluebridge.compiled import Group

DEVICE = Group(
    "device",
    sources=("device",),
    packages=(
        "bluebridge.device.dma",
        "bluebridge.device.ethernet",
        "bluebridge.device.frames",
        "bluebridge.device.fabric",
        "bluebridge.device.fabric.faults",
        "bluebridge.device.fabric.subnet",
        "bluebridge.device.mlx4",
        "bluebridge.device.mlx4.memory",
        "bluebridge.device.mlx4.ports",
        "bluebridge.device.mlx4.registers",
        "bluebridge.device.mlx4.rings",
        "bluebridge.device.mlx4.steering",
        "bluebridge.device.mlx5",
        "bluebridge.device.mlx5.objects",
        "bluebridge.device.mlx5.ports",
        "bluebridge.device.mlx5.registers",
        "bluebridge.device.mlx5.rings",
        "bluebridge.device.mlx5.steering",
        "bluebridge.device.packets",
        "bluebridge.device.pci",
        "bluebridge.device.rdma.connected",
        "bluebridge.device.rdma.datagrams",
        "bluebridge.device.rdma.memory",
        "bluebridge.device.rdma.pairs",
        "bluebridge.device.rdma.ports",
        "bluebridge.device.rings",
    ),
    modules=(
        "bluebridge.device.armed_faults",
        "bluebridge.device.buslog.native_packing",
        "bluebridge.device.buslog.packing",
        "bluebridge.device.buslog.reader",
        "bluebridge.device.buslog.record",
        "bluebridge.device.buslog.wire",
        "bluebridge.device.buslog.writer",
        "bluebridge.device.ntb.gen4",
        "bluebridge.device.ntb.window",
        "bluebridge.device.pyvfio_user._callbacks",
        "bluebridge.device.pyvfio_user._connection",
        "bluebridge.device.pyvfio_user._files",
        "bluebridge.device.pyvfio_user._listener",
        "bluebridge.device.pyvfio_user._message_filter",
        "bluebridge.device.pyvfio_user.constants",
        "bluebridge.device.pyvfio_user._region_filter",
        "bluebridge.device.pyvfio_user._regions",
        "bluebridge.device.pyvfio_user.config_space",
        "bluebridge.device.pyvfio_user.context",
        "bluebridge.device.refusal",
        "bluebridge.device.rdma.vocabulary",
        "bluebridge.device.queue_pairs",
        "bluebridge.device.rdma.work",
    ),
    native=("bluebridge.device.pieces",),
)
"""The device server."""
