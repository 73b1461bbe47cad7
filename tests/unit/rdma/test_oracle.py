"""Two adapters that are asked for anything, in any weather, break no clause of docs/clauses.md.

Many more worlds: `python -m tests.world verbs --seeds 10000`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.layout.net.roce import Syndrome
from tests.models.rdma_node import decode
from tests.oracle.clauses import Broken
from tests.world import seeds
from tests.world.verbs.guest import Guest
from tests.world.verbs.world import World, replay

SEEDS = 30
Message = Request | Response


def test_adapters_break_no_clause() -> None:
    seeds.each("verbs", replay, range(SEEDS))


def message_forged(forge: Callable[[Message], Message]) -> Callable[[pytest.MonkeyPatch], None]:
    """The oracle sees other messages than those that have left."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        leaves = Guest.leaves
        patch.setattr(Guest, "leaves", lambda guest, message: leaves(guest, forge(message)))

    return apply


def completion_lost(patch: pytest.MonkeyPatch) -> None:
    """The oracle sees no completion of a request that succeeded."""
    completes = Guest._completes

    def lose(guest: Guest, raw: bytes) -> None:
        found = decode(raw)
        if found.status or not found.send:
            completes(guest, raw)

    patch.setattr(Guest, "_completes", lose)


def memory_changed(patch: pytest.MonkeyPatch) -> None:
    """A byte of a guest's memory changes that nobody has written."""
    rest = Guest.rest

    def changed(guest: Guest) -> None:
        guest.area[9] ^= 1
        rest(guest)

    patch.setattr(Guest, "rest", changed)


def refused(message: Message) -> Message:
    """A NAK instead of an acknowledgement."""
    if isinstance(message, Response) and not message.syndrome:
        return replace(message, syndrome=int(Syndrome.NAK_REMOTE_ACCESS))
    return message


FORGERIES = {
    "9.7 PSN": message_forged(lambda each: replace(each, psn=each.psn + 1)),
    "9.7 expected PSN": message_forged(refused),
    "10.6.2 L_Key": message_forged(
        lambda each: replace(each, payload=()) if isinstance(each, Request) else each
    ),
    "10.8.2 unsignalled": completion_lost,
    "9.7 R_Key": memory_changed,
}


@pytest.mark.parametrize("clause", FORGERIES)
def test_a_forged_history_breaks_the_clause(clause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FORGERIES[clause](monkeypatch)
    with pytest.raises(Broken) as broken:
        for seed in range(9):
            World(seed).run()
    assert broken.value.clause == clause
