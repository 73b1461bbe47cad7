"""Commands on protection and transport domains, keys, and sets of counters."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.objects import (
    CREATE_MKEY,
    ENTRY,
    LIST,
    QUERY_Q_COUNTER,
    SPECIAL_CONTEXTS,
)
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule, number_of, numbered
from bluebridge.device.mlx5.objects.keys import NULL_KEY, RESERVED_LKEY
from bluebridge.device.mlx5.ports.counters import q_counters


def alloc_pd(adapter: Adapter, data: bytes) -> bytes:
    """Return the number of a protection domain."""
    return numbered(adapter.objects.pds.take())


def dealloc_pd(adapter: Adapter, data: bytes) -> None:
    """Free a protection domain."""
    adapter.objects.pds.free(number_of(data))


def alloc_domain(adapter: Adapter, data: bytes) -> bytes:
    """Return the number of a transport domain."""
    return numbered(adapter.objects.domains.take())


def dealloc_domain(adapter: Adapter, data: bytes) -> None:
    """Free a transport domain."""
    adapter.objects.domains.free(number_of(data))


def create_mkey(adapter: Adapter, data: bytes) -> Iterator[bytes]:
    """Make a memory key in portions, and return its index."""
    number = yield from adapter.objects.keys.create(data)
    yield numbered(number)


def query_mkey(adapter: Adapter, data: bytes) -> bytes:
    """Return the context of a memory key, and the parts of others that it consists of.

    Who pages on demand looks there for what is behind a window (ib/odp.c:
    pagefault_single_data_segment).
    """
    keys, number = adapter.objects.keys, number_of(data)
    answer = bytes(ENTRY) + keys.query(number)
    return answer.ljust(LIST, b"\0") + keys.query_parts(number)


def destroy_mkey(adapter: Adapter, data: bytes) -> None:
    """Destroy a memory key."""
    adapter.objects.keys.destroy(number_of(data))


def query_special_contexts(adapter: Adapter, data: bytes) -> bytes:
    """Return the keys that need no CREATE_MKEY: to all of memory, and to none."""
    return bytes(SPECIAL_CONTEXTS.pack(reserved_lkey=RESERVED_LKEY, null_key=NULL_KEY))


def alloc_q_counter(adapter: Adapter, data: bytes) -> bytes:
    """Return the number of a set of counters, which are zero."""
    return numbered(adapter.objects.create_counters())


def dealloc_q_counter(adapter: Adapter, data: bytes) -> None:
    """Free a set of counters."""
    adapter.objects.destroy_counters(number_of(data) & 0xFF)


def query_q_counter(adapter: Adapter, data: bytes) -> bytes:
    """Return a set of counters, and clear it if that is wanted."""
    objects, number = adapter.objects, QUERY_Q_COUNTER.get(data, "number")
    objects.counter_sets.check(number)
    missed, troubles = objects.steering.missed, objects.rdma.sets[number]
    answer = q_counters(troubles, missed.get(number, 0))
    if QUERY_Q_COUNTER.get(data, "clear"):
        missed.pop(number, None)
        troubles.clear()
    return answer


RULES: dict[int, Rule] = {
    Opcode.ALLOC_PD: Rule(alloc_pd),
    Opcode.DEALLOC_PD: Rule(dealloc_pd),
    Opcode.ALLOC_TRANSPORT_DOMAIN: Rule(alloc_domain),
    Opcode.DEALLOC_TRANSPORT_DOMAIN: Rule(dealloc_domain),
    Opcode.CREATE_MKEY: Rule(create_mkey, CREATE_MKEY.size, brief=True),
    Opcode.QUERY_MKEY: Rule(query_mkey),
    Opcode.DESTROY_MKEY: Rule(destroy_mkey, brief=True),
    Opcode.QUERY_SPECIAL_CONTEXTS: Rule(query_special_contexts),
    Opcode.ALLOC_Q_COUNTER: Rule(alloc_q_counter),
    Opcode.DEALLOC_Q_COUNTER: Rule(dealloc_q_counter),
    Opcode.QUERY_Q_COUNTER: Rule(query_q_counter, QUERY_Q_COUNTER.size),
}
