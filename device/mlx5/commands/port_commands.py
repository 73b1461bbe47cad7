"""Commands on the virtual port, and registers of the port."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import NIC_VPORT
from bluebridge.device.layout.mlx5.objects import (
    MODIFY_VPORT,
    QUERY_VPORT,
    VPORT_IN,
    VPORT_OUT,
    VPORT_STATE,
)
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.access_register import Access
from bluebridge.device.mlx5.commands.command import Rule, nothing
from bluebridge.device.mlx5.ports.counters import vport_counters
from bluebridge.device.mlx5.ports.registers import PORT_REGISTERS
from bluebridge.device.mlx5.settings.refused import Refused

FOLLOWS_LINK = 2
"""State that software wishes of the virtual port: that of the link."""


def _check_own(data: bytes) -> None:
    """Raise `Refused` unless a command is about the function's own virtual port."""
    if QUERY_VPORT.get(data, "other"):
        raise Refused(Status.BAD_PARAM, "there is no virtual port but the own one")


def query_state(adapter: Adapter, data: bytes) -> bytes:
    """Return whether the link is up."""
    _check_own(data)
    up = adapter.objects.port.link_up
    return bytes(VPORT_STATE.pack(admin_state=FOLLOWS_LINK, state=int(up)))


def query_context(adapter: Adapter, data: bytes) -> bytes:
    """Return the context of the virtual port."""
    _check_own(data)
    return bytes(VPORT_OUT) + adapter.objects.vport.query(QUERY_VPORT.get(data, "list_type"))


def modify_context(adapter: Adapter, data: bytes) -> None:
    """Change fields of the context of the virtual port."""
    _check_own(data)
    adapter.objects.vport.modify(MODIFY_VPORT.get(data, "fields"), data[VPORT_IN:])


def query_counters(adapter: Adapter, data: bytes) -> bytes:
    """Return the counters of the virtual port."""
    _check_own(data)
    return vport_counters(adapter.objects.port, adapter.objects.traffic)


def access(number: int) -> Access:
    """Return the rule of a register of the port."""

    def rule(adapter: Adapter, data: bytes, write: bool) -> bytes:
        return adapter.objects.registers.access(number, data, write=write)

    return rule


REGISTERS: dict[int, Access] = {number: access(number) for number in PORT_REGISTERS}

RULES: dict[int, Rule] = {
    Opcode.QUERY_VPORT_STATE: Rule(query_state),
    Opcode.MODIFY_VPORT_STATE: Rule(nothing),
    Opcode.QUERY_NIC_VPORT_CONTEXT: Rule(query_context),
    Opcode.MODIFY_NIC_VPORT_CONTEXT: Rule(modify_context, VPORT_IN + NIC_VPORT.size),
    Opcode.QUERY_VPORT_COUNTER: Rule(query_counters),
    # No port is joined to another one, which the zeros say. UCX asks in any case.
    Opcode.QUERY_LAG: Rule(nothing),
}
