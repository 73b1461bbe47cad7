"""What the fuzzers found in the device, each as small as it can be."""

from __future__ import annotations

from struct import pack

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.pci.memory import GuestMemory
from tests.models.rdma_node import Pair


def test_an_entry_longer_than_its_ring_is_flushed_once() -> None:
    """It led around the ring to itself, an even number of times, and so had no end."""
    pair = Pair(log_sq_size=0).connect()
    pair.a.command(Opcode.TOERR_QP, bytes(8), pair.qa.qpn)
    pair.a.host.poke(pair.qa.address, pack(">II", 0, 16))  # two slots of a ring of one
    pair.a.doorbell(pair.qa.qpn)
    for _ in range(10):
        pair.a.host.turn()
    assert len(pair.a.completions(pair.qa)) == 1


def test_no_bytes_can_be_stored_at_address_zero_of_a_guest_without_memory() -> None:
    GuestMemory().write(0, b"")
