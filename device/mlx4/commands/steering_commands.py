"""Commands on multicast groups and on rules of device-managed flow steering, one of which is used.

Linux `mlx4/mcg.c: mlx4_multicast_attach, mlx4_init_mcg_table, mlx4_flow_attach`.
"""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import MAILBOX_SIZE, Opcode, Status
from bluebridge.device.layout.mlx4.steering import UD_RANGE
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.ports.multicast_groups import MulticastGroups
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.mlx4.steering.rules import rule_of
from bluebridge.device.rdma.vocabulary import CONNECTED

DEFAULT_RECORD = 1


def attach(adapter: Adapter, command: Command) -> int:
    """Add a rule and return its number; the input modifier is its length in 4-byte words.

    A queue pair may be in RST: Linux names one that never leaves it in rules that drop frames
    (`en_resources.c: mlx4_en_create_drop_qp`). BAD_SYS_STATE without device-managed steering,
    BAD_INDEX for a port or a queue pair that the device does not have, BAD_RESOURCE for a queue
    pair that gets nothing but messages of its peer.
    """
    _check_mode(adapter)
    if command.in_modifier > MAILBOX_SIZE // 4:
        raise CommandError(Status.BAD_PARAM, f"a rule of {command.in_modifier} words")
    rule = rule_of(command.mailbox(4 * command.in_modifier))
    port = adapter.port_of(rule.port)
    if rule.qpn >> adapter.parameters.log_qps:
        raise CommandError(Status.BAD_INDEX, f"QP {rule.qpn:#x}")
    qp = adapter.qps.get(rule.qpn)
    if qp is not None and qp.role in CONNECTED:
        raise CommandError(Status.BAD_RESOURCE, f"QP {rule.qpn:#x} has a peer of its own")
    number = adapter.rules.attach(adapter.tables_of(port).rules, rule)
    _mirror(adapter)
    return number


def detach(adapter: Adapter, command: Command) -> None:
    """Remove the rule whose number is the immediate input."""
    _check_mode(adapter)
    adapter.rules.detach(command.in_param)
    _mirror(adapter)


def _mirror(adapter: Adapter) -> None:
    for port, tables in zip(adapter.ports, adapter.tables, strict=True):
        port.mirrors = tables.rules.mirrors


def set_datagram_range(adapter: Adapter, command: Command) -> None:
    """Set the UD queue pairs on InfiniBand that receive only what rules give them."""
    _check_mode(adapter)
    words = command.in_param.to_bytes(8, "big")
    first, last = UD_RANGE.get(words, "first"), UD_RANGE.get(words, "last")
    if last < first or last >> adapter.parameters.log_qps:
        raise CommandError(Status.BAD_PARAM, f"queue pairs {first:#x} to {last:#x}")
    adapter.parameters.datagram_range = range(first, last + 1)


def _check_mode(adapter: Adapter) -> None:
    if not adapter.parameters.flow_steering:
        raise CommandError(Status.BAD_SYS_STATE, "INIT_HCA asked for no flow steering")


def read_mcg(adapter: Adapter, command: Command) -> bytes:
    """Return one multicast group record."""
    return _groups(adapter).read(command.in_modifier)


def write_mcg(adapter: Adapter, command: Command) -> None:
    """Store one record; op modifier 1: the default record of a port and a kind of addresses."""
    groups = _groups(adapter)
    if command.op_modifier == DEFAULT_RECORD:
        port = adapter.port_of(command.in_modifier >> 16 & 0xFF)
        steer = command.in_modifier >> 1 & 1
        record = command.mailbox(groups.record_bytes)
        groups.write_default(port.number, steer, record)
        return
    if command.op_modifier:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")
    groups.write(command.in_modifier, command.mailbox(groups.record_bytes))


def mgid_hash(adapter: Adapter, command: Command) -> int:
    """Return the hash bucket of a GID."""
    return _groups(adapter).hash(command.mailbox(16))


def _groups(adapter: Adapter) -> MulticastGroups:
    """Return the multicast groups; raises `CommandError` (BAD_SYS_STATE) if rules replace them."""
    if adapter.parameters.flow_steering:
        raise CommandError(Status.BAD_SYS_STATE, "groups are rules of device-managed steering")
    return adapter.multicast


RULES: dict[int, Rule] = {
    Opcode.READ_MCG: Rule(read_mcg),
    Opcode.WRITE_MCG: Rule(write_mcg),
    Opcode.MGID_HASH: Rule(mgid_hash),
    Opcode.QP_FLOW_STEERING_ATTACH: Rule(attach),
    Opcode.QP_FLOW_STEERING_DETACH: Rule(detach),
    Opcode.FLOW_STEERING_IB_UC_QP_RANGE: Rule(set_datagram_range),
}
