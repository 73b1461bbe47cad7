"""Faults by name of a ConnectX-3: its commands' answers, queues, tables of GIDs and keys."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Final

from bluebridge.device import cards
from bluebridge.device.armed_faults import ArmedFault
from bluebridge.device.layout.faults import Effect, NamedFault
from bluebridge.device.layout.mlx4.bar0 import MSIX_VECTORS
from bluebridge.device.layout.mlx4.capabilities import QUERY_ADAPTER, QUERY_DEV_CAP, QUERY_PORT
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.cqe import CompletionStatus, vendor_syndrome
from bluebridge.device.layout.mlx4.eqe import (
    CQ_ERROR_EQE,
    DATA_OFFSET,
    OWNER_OFFSET,
    PORT_MNG_EQE,
    EventType,
)
from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.mlx4.rings.send_queue import SendRing, Walk
from bluebridge.device.rings.completion_ring import ACCESS, OVERRUN
from bluebridge.device.server.card_faults import CardFaults
from bluebridge.device.server.fault_values import number_in

_ANSWERS: Final = {
    int(Opcode.QUERY_DEV_CAP): QUERY_DEV_CAP,
    int(Opcode.QUERY_PORT): QUERY_PORT,
    int(Opcode.QUERY_ADAPTER): QUERY_ADAPTER,
}
"""The forms of answers of which a field can be wrong, by opcode."""


class ConnectX3Faults(CardFaults):
    """The faults of one ConnectX-3."""

    title = cards.CONNECTX3.title
    table = BY_NAME
    opcodes = Opcode
    statuses = Status
    events = EventType
    syndromes = CompletionStatus
    vectors = MSIX_VECTORS

    def __init__(self, hca: Hca) -> None:
        adapter = hca.adapter
        super().__init__(adapter.bus, adapter.ports[0], adapter.faults, adapter.regions)
        self._hca = hca

    def number(self, word: str, text: str) -> int:
        number, adapter = number_in(word, text), self._hca.adapter
        found = {"qpn": adapter.pair, "cqn": adapter.cqs.get, "srqn": adapter.srqs.get}.get(word)
        if found is not None and found(number) is None:
            kind = word.removesuffix("n")
            raise ValueError(
                f"there is no {kind.upper()} {number:#x}: `bluebridge show GUEST {kind}` lists them"
            )
        return number

    def vendor(self, status: int) -> int:
        return vendor_syndrome(status)

    def begin(self, fault: ArmedFault, values: Mapping[str, str]) -> None:
        hca, effect = self._hca, fault.effect
        if effect is Effect.DOORBELL_IGNORED:
            _deafen(hca, fault)
        elif effect is Effect.INTERRUPT_LOST:
            fault.undo = lambda: hca.adapter.eqs.catch_up(fault.target)
        elif effect is Effect.COMMAND_WRONG:
            value = number_in("value", values["value"])
            fault.change = _change(fault.target, values["field"], value)
        elif effect is Effect.GID_VANISHES:
            _empty_gid(hca, fault)
        elif effect is Effect.KEY_LOCKED:
            self.lock(fault)

    def happen(self, named: NamedFault, values: Mapping[str, str]) -> None:
        adapter = self._hca.adapter
        if named.effect is Effect.PORT_EVENT:
            event = bytes(PORT_MNG_EQE.pack(port=1, changed=int(values["changed"])))
            data = event[DATA_OFFSET:OWNER_OFFSET]
            adapter.eqs.post_async(EventType.PORT_MNG_CHG, data, int(values["subtype"]))
            return
        name = named.needs[0]
        number = self.number(name, values[name])
        if named.effect is Effect.CQ_OVERRUN:
            queue = adapter.cqs.get(number)
            assert queue is not None
            queue.fail(OVERRUN)
            return
        kind = EventType[values["event"]]
        if kind is EventType.CQ_ERROR:  # drivers print its syndrome, which is never 0
            said = bytes(CQ_ERROR_EQE.pack(cqn=number, syndrome=ACCESS))
            adapter.eqs.post_async(kind, said[DATA_OFFSET:OWNER_OFFSET])
        else:
            adapter.eqs.post_numbered(kind, number)


def _change(opcode: int, field: str, value: int) -> Callable[[bytes], bytes]:
    """Return what puts `value` into a field of a command's answer; raises `ValueError`."""
    layout = _ANSWERS.get(opcode)
    if layout is None:
        known = ", ".join(Opcode(each).name for each in _ANSWERS)
        raise ValueError(f"opcode={Opcode(opcode).name}: choose from {known}")
    names = [item.name for item in layout.fields]
    if field not in names:
        near = difflib.get_close_matches(field, names, n=8, cutoff=0.3)
        raise ValueError(
            f"{layout.name} has no field {field[:40]!r}: choose from {', '.join(near or names)}"
        )
    layout.set(bytearray(layout.size), field, value)  # whether it fits

    def change(answer: bytes) -> bytes:
        changed = bytearray(answer)
        layout.set(changed, field, value)
        return bytes(changed)

    return change


def _empty_gid(hca: Hca, fault: ArmedFault) -> None:
    """Empty an entry of the first port's GID table, unless software sets the table anew."""
    port, tables, index = hca.adapter.ports[0], hca.adapter.tables[0], fault.target
    before = list(tables.gids)
    if index >= len(before) or before[index] == NO_GID:
        raise ValueError(f"there is no GID {index}: `bluebridge show GUEST ports` lists them")
    after = [NO_GID if at == index else gid for at, gid in enumerate(before)]
    tables.gids = after
    port.sources_changed()

    def undo() -> None:
        if list(tables.gids) == after:
            tables.gids = before
            port.sources_changed()

    fault.undo = undo


def _send_ring(hca: Hca, qpn: int) -> SendRing | None:
    qp = hca.adapter.pair(qpn)
    return qp.sq if qp is not None and isinstance(qp.sq, SendRing) else None


def _deafen(hca: Hca, fault: ArmedFault) -> None:
    """Let a send queue ignore doorbells; if it is there afterwards, it takes what was posted."""
    ring = _send_ring(hca, fault.target)
    if ring is None:
        raise ValueError(f"QP {fault.target:#x} has no send queue: `bluebridge show GUEST qp`")
    if ring.walk is Walk.DEAF:
        raise ValueError(
            f"QP {fault.target:#x} ignores its doorbells already: `bluebridge fault GUEST armed`"
        )
    ring.walk = Walk.DEAF

    def hear() -> None:
        later = _send_ring(hca, fault.target)
        if later is not None and later.walk is Walk.DEAF:
            later.walk = Walk.DUE
            later.go_on()

    fault.undo = hear
