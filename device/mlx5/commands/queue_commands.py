"""Commands on completion queues, SQs and RQs."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import CQC, RQC, SQC, WQ, WQ_OFFSET
from bluebridge.device.layout.mlx5.objects import (
    CONTEXT,
    ENTRY,
    LIST,
    MODIFY_CQ,
    MODIFY_QUEUE,
    RESIZE,
)
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule, number_of, numbered

_PAGES = CONTEXT + WQ_OFFSET + WQ.size
"""Offset of the list of pages of an SQ or RQ, behind its context with the work queue."""


def create_cq(adapter: Adapter, data: bytes) -> bytes:
    """Make a completion queue, and return its number."""
    return numbered(adapter.objects.cqs.create(data))


def query_cq(adapter: Adapter, data: bytes) -> bytes:
    """Return the present context of a completion queue."""
    return bytes(ENTRY) + adapter.objects.cqs.known(number_of(data)).query()


def modify_cq(adapter: Adapter, data: bytes) -> None:
    """Change the moderation of a completion queue, or give it another ring."""
    cqs, number = adapter.objects.cqs, number_of(data)
    if MODIFY_CQ.get(data, "modifier") == RESIZE:
        cqs.resize(number, data)
    else:
        context = data[ENTRY : ENTRY + CQC.size]
        cqs.known(number).modify(MODIFY_CQ.get(data, "fields"), context)


def destroy_cq(adapter: Adapter, data: bytes) -> None:
    """Destroy a completion queue."""
    adapter.objects.cqs.destroy(number_of(data))


def create_sq(adapter: Adapter, data: bytes) -> bytes:
    """Make an SQ, and return its number."""
    return numbered(adapter.objects.create_sq(data[CONTEXT:_PAGES], data[_PAGES:]))


def modify_sq(adapter: Adapter, data: bytes) -> None:
    """Change the state of an SQ."""
    queue = adapter.objects.sqs.known(number_of(data))
    queue.change(MODIFY_QUEUE.get(data, "state"), SQC.get(data, "state", CONTEXT))


def query_sq(adapter: Adapter, data: bytes) -> bytes:
    """Return the present context of an SQ."""
    return bytes(CONTEXT) + adapter.objects.sqs.known(number_of(data)).query()


def destroy_sq(adapter: Adapter, data: bytes) -> None:
    """Destroy an SQ."""
    adapter.objects.destroy_sq(number_of(data))


def create_rq(adapter: Adapter, data: bytes) -> bytes:
    """Make an RQ, and return its number."""
    return numbered(adapter.objects.create_rq(data[CONTEXT:_PAGES], data[_PAGES:]))


def modify_rq(adapter: Adapter, data: bytes) -> None:
    """Change the state of an RQ, and what it does with tags and check sequences."""
    queue = adapter.objects.rqs.known(number_of(data))
    queue.change(MODIFY_QUEUE.get(data, "state"), RQC.get(data, "state", CONTEXT))
    queue.modify(MODIFY_QUEUE.get(data, "fields"), data[CONTEXT:_PAGES])


def query_rq(adapter: Adapter, data: bytes) -> bytes:
    """Return the present context of an RQ."""
    return bytes(CONTEXT) + adapter.objects.rqs.known(number_of(data)).query()


def destroy_rq(adapter: Adapter, data: bytes) -> None:
    """Destroy an RQ."""
    adapter.objects.destroy_rq(number_of(data))


RULES: dict[int, Rule] = {
    Opcode.CREATE_CQ: Rule(create_cq, LIST),
    Opcode.QUERY_CQ: Rule(query_cq),
    Opcode.MODIFY_CQ: Rule(modify_cq, ENTRY + CQC.size),
    Opcode.DESTROY_CQ: Rule(destroy_cq),
    Opcode.CREATE_SQ: Rule(create_sq, _PAGES),
    Opcode.MODIFY_SQ: Rule(modify_sq, CONTEXT + SQC.size),
    Opcode.QUERY_SQ: Rule(query_sq),
    Opcode.DESTROY_SQ: Rule(destroy_sq),
    Opcode.CREATE_RQ: Rule(create_rq, _PAGES),
    Opcode.MODIFY_RQ: Rule(modify_rq, CONTEXT + RQC.size),
    Opcode.QUERY_RQ: Rule(query_rq),
    Opcode.DESTROY_RQ: Rule(destroy_rq),
}
