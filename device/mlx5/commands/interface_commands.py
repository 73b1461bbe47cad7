"""Commands on the interfaces of send and receive (TIS, TIR) and tables of RQs."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import RQTC, TIRC, TISC
from bluebridge.device.layout.mlx5.objects import CONTEXT, MODIFY_QUEUE, TirField
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule, number_of, numbered
from bluebridge.device.mlx5.objects.references import listed_queues


def create_tis(adapter: Adapter, data: bytes) -> bytes:
    """Make a TIS, and return its number."""
    return numbered(adapter.objects.tises.add(data[CONTEXT : CONTEXT + TISC.size]))


def modify_tis(adapter: Adapter, data: bytes) -> None:
    """Take other attributes of a TIS, none of which matters to a port without priorities."""
    adapter.objects.tises.known(number_of(data))


def query_tis(adapter: Adapter, data: bytes) -> bytes:
    """Return the context of a TIS."""
    return bytes(CONTEXT) + adapter.objects.tises.known(number_of(data))


def destroy_tis(adapter: Adapter, data: bytes) -> None:
    """Destroy a TIS."""
    adapter.objects.tises.remove(number_of(data))


def create_tir(adapter: Adapter, data: bytes) -> bytes:
    """Make a TIR, and return its number."""
    return numbered(adapter.objects.create_tir(data[CONTEXT : CONTEXT + TIRC.size]))


def modify_tir(adapter: Adapter, data: bytes) -> None:
    """Change what a TIR hashes, and which own frames it takes."""
    tir = adapter.objects.tirs.known(number_of(data))
    fields, context = MODIFY_QUEUE.get(data, "fields"), data[CONTEXT : CONTEXT + TIRC.size]
    if fields & TirField.HASH:
        tir.load_hash(context)
    if fields & TirField.LOOPBACK:
        tir.set_loopback(TIRC.get(context, "loopback"))


def query_tir(adapter: Adapter, data: bytes) -> bytes:
    """Return the context of a TIR."""
    return bytes(CONTEXT) + bytes(adapter.objects.tirs.known(number_of(data)).context)


def destroy_tir(adapter: Adapter, data: bytes) -> None:
    """Destroy a TIR."""
    adapter.objects.tirs.remove(number_of(data))


def create_rqt(adapter: Adapter, data: bytes) -> bytes:
    """Make a table of RQs, and return its number."""
    return numbered(adapter.objects.create_queue_table(listed_queues(data)))


def modify_rqt(adapter: Adapter, data: bytes) -> None:
    """Replace the queues of a table."""
    table, queues = adapter.objects.queue_tables.known(number_of(data)), listed_queues(data)
    adapter.objects.check_queues(queues)
    table.queues = queues


def query_rqt(adapter: Adapter, data: bytes) -> bytes:
    """Return the context of a table of RQs, with their numbers."""
    queues = adapter.objects.queue_tables.known(number_of(data)).queues
    context = RQTC.pack(max_size=len(queues), actual_size=len(queues))
    listed = b"".join(number.to_bytes(4, "big") for number in queues)
    return bytes(CONTEXT) + bytes(context) + listed


def destroy_rqt(adapter: Adapter, data: bytes) -> None:
    """Destroy a table of RQs, which no TIR spreads frames over."""
    adapter.objects.queue_tables.remove(number_of(data))


RULES: dict[int, Rule] = {
    Opcode.CREATE_TIS: Rule(create_tis, CONTEXT + TISC.size),
    Opcode.MODIFY_TIS: Rule(modify_tis),
    Opcode.QUERY_TIS: Rule(query_tis),
    Opcode.DESTROY_TIS: Rule(destroy_tis),
    Opcode.CREATE_TIR: Rule(create_tir, CONTEXT + TIRC.size),
    Opcode.MODIFY_TIR: Rule(modify_tir, CONTEXT + TIRC.size),
    Opcode.QUERY_TIR: Rule(query_tir),
    Opcode.DESTROY_TIR: Rule(destroy_tir),
    Opcode.CREATE_RQT: Rule(create_rqt, CONTEXT + RQTC.size),
    Opcode.MODIFY_RQT: Rule(modify_rqt, CONTEXT + RQTC.size),
    Opcode.QUERY_RQT: Rule(query_rqt),
    Opcode.DESTROY_RQT: Rule(destroy_rqt),
}
