"""Commands on event queues and on pages of doorbells."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.event_queues import CREATE_EQ, EQC
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule, number_of, numbered

QUERIED_EQC = 0x10
"""Offset of the context in the output of QUERY_EQ."""
_WORD = 8


def alloc_uar(adapter: Adapter, data: bytes) -> bytes:
    """Return the number of a page of doorbells."""
    return numbered(adapter.doorbells.allocate())


def dealloc_uar(adapter: Adapter, data: bytes) -> None:
    """Free a page of doorbells."""
    adapter.doorbells.free(number_of(data))


def create_eq(adapter: Adapter, data: bytes) -> bytes:
    """Make an event queue for the types of events whose bits are set."""
    context = CREATE_EQ.get_raw(data, "context")
    mask = int.from_bytes(CREATE_EQ.get_raw(data, "event_bitmask")[:_WORD], "big")
    return numbered(adapter.eqs.create(context, mask, data[CREATE_EQ.size :]))


def destroy_eq(adapter: Adapter, data: bytes) -> None:
    """Destroy an event queue."""
    adapter.eqs.destroy(number_of(data) & 0xFF)


def query_eq(adapter: Adapter, data: bytes) -> bytes:
    """Return the context of an event queue."""
    context = adapter.eqs.query(number_of(data) & 0xFF)
    return bytes(QUERIED_EQC) + context[: EQC.size]


RULES: dict[int, Rule] = {
    Opcode.ALLOC_UAR: Rule(alloc_uar),
    Opcode.DEALLOC_UAR: Rule(dealloc_uar),
    Opcode.CREATE_EQ: Rule(create_eq, CREATE_EQ.size),
    Opcode.DESTROY_EQ: Rule(destroy_eq),
    Opcode.QUERY_EQ: Rule(query_eq),
}
