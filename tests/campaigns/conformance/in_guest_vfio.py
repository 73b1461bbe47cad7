"""Runs in a guest: rdma-core's own driver of mlx5 in user space, which takes a card over VFIO.

    LD_PRELOAD=type1.so python3 in_guest_vfio.py PCI_ADDRESS FOLDER TEST

FOLDER holds rdma-core's package `tests`, whose test of that driver skips any card with Ethernet.
Here its queue pairs have a RoCE address, as `SET_ROCE_ADDRESS` sets it.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import unittest
from importlib import import_module
from types import SimpleNamespace
from typing import Any

ADDRESS, FOLDER, TEST = sys.argv[1:4]
sys.path[:0] = [FOLDER, f"{FOLDER}/tests"]
sys.argv[1:] = ["--pci-dev", ADDRESS]

_package: Any = import_module("tests")
_package.parser.parse_args()
e: Any = import_module("pyverbs.enums")
mem: Any = import_module("pyverbs.mem_alloc")
mlx5_base: Any = import_module("tests.mlx5_base")
test_mlx5_vfio: Any = import_module("tests.test_mlx5_vfio")

GID = bytes(10) + b"\xff\xff" + bytes((10, 9, 0, 9))
ROCE_V2 = 2
PAGE = 4096
MESSAGES = 100
PORT_CHANGE = 9
EQE, LAST = 64, 56
"""Bytes of an entry of an event queue, and where its last word is, whose low bit is the owner."""
QUERY_NIC_VPORT_CONTEXT, SET_ROCE_ADDRESS = 0x754, 0x761
MAC_AT = 0x10 + 0xF6


def command(context: Any, opcode: int, data: bytes, output: int) -> bytes:
    """Send a firmware command; its whole output."""
    answer: bytes = context.devx_general_cmd(struct.pack(">HHHH", opcode, 0, 0, 0) + data, output)
    assert answer[0] == 0, f"opcode {opcode:#x}: {answer[:8].hex()}"
    return answer


class Roce:
    """The additions to rdma-core's resources for a card with Ethernet."""

    ctx: Any

    def query_gid(self) -> None:
        """Give the card the RoCE address, at index 0."""
        self.mac = command(self.ctx, QUERY_NIC_VPORT_CONTEXT, bytes(8), 0x110)[MAC_AT:][:6]
        address = GID + bytes(2) + self.mac + struct.pack(">II", ROCE_V2, 0)
        command(self.ctx, SET_ROCE_ADDRESS, bytes(8) + address, 16)
        self.gid = list(struct.unpack(">4I", GID))

    def create_umem(self, size: int, access: int = e.IBV_ACCESS_LOCAL_WRITE, **_: int) -> Any:
        """Return memory in pages of its own: without an IOMMU each is mapped once."""
        return super().create_umem(size, access, PAGE)  # type: ignore[misc]

    def to_rts(self) -> None:
        """Tell the version of the address, which this driver's context does not know."""
        known, context = self.ctx, self.ctx
        self.ctx = SimpleNamespace(
            devx_general_cmd=context.devx_general_cmd,
            query_gid_type=lambda *_: e.IBV_GID_TYPE_SYSFS_ROCE_V2,
        )
        super().to_rts()  # type: ignore[misc]
        self.ctx = known


class Resources(Roce, test_mlx5_vfio.Mlx5VfioResources):  # type: ignore[misc]
    """A queue pair and what it needs."""


class EqResources(Roce, test_mlx5_vfio.Mlx5VfioEqResources):  # type: ignore[misc]
    """The same with an event queue of its own."""

    def init_dveq_buff(self) -> None:
        """Give all entries to the card: rdma-core's own reads half of each, which Scapy refuses."""
        for at in range(0, self.nent * EQE, EQE):
            mem.writebe64(self.eq.vaddr + at + LAST, 1)
        self.update_ci(0)


class VfioTest(test_mlx5_vfio.Mlx5DevxTrafficBase):  # type: ignore[misc]
    """Messages, and an event with its interrupt."""

    def setUp(self) -> None:
        self.server: Any = None
        self.client: Any = None

    def tearDown(self) -> None:
        for side in (self.client, self.server):
            if side is not None:
                side.close_resources()

    def test_messages(self) -> None:
        """Two queue pairs send each other's memory, whose contents are compared."""
        self.server = Resources(ib_port=1, pci_name=ADDRESS, gid_index=0)
        self.client = Resources(ib_port=1, pci_name=ADDRESS, gid_index=0, ctx=self.server.ctx)
        self.server.change_port_state_with_registers(test_mlx5_vfio.PortStatus.MLX5_PORT_UP)
        for own, peer in ((self.server, self.client), (self.client, self.server)):
            own.pre_run(peer.psn, peer.qpn, peer.gid, 0, peer.mac)
        self.client.num_msgs = MESSAGES
        self.send_imm_traffic()

    def test_event(self) -> None:
        """The link comes up, which an event queue tells, with its interrupt."""
        self.server = EqResources(ib_port=1, pci_name=ADDRESS, gid_index=0)
        interrupt, ring = self.server.msi_vector.fd, self.server.eq.vaddr
        self.server.change_port_state_with_registers(test_mlx5_vfio.PortStatus.MLX5_PORT_UP)
        ready, _, _ = select.select([interrupt], [], [], 10)
        assert ready, "no interrupt"
        first, last = (mem.read64(ring + at).to_bytes(8, "little") for at in (0, LAST))
        assert (first[1], last[7] & 1) == (PORT_CHANGE, 0)


mlx5_base.is_gid_available = lambda _: None
ended = unittest.main(argv=["vfio", "-v", f"VfioTest.{TEST}"], exit=False)
sys.stderr.flush()
os._exit(not ended.result.wasSuccessful())  # pyverbs closes contexts before what is in them
