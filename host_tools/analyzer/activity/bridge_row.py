"""An activity of a bridge or DMA engine as a row: source, target and time to the answer."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.buslog.record import host_of
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction

SHOWN = frozenset((
    ActivityKind.STORE,
    ActivityKind.DESCRIPTOR,
    ActivityKind.DOORBELL,
    ActivityKind.LINK,
    ActivityKind.RESET,
))  # fmt: skip
"""Kinds that always have a row; register accesses have one if they have effects."""
SCRATCHPAD = "scratchpad "
ANSWERS = {
    ActivityKind.STORE: "store to arrival",
    ActivityKind.DESCRIPTOR: "descriptor to completion",
    ActivityKind.DOORBELL: "doorbell to interrupt",
}


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """A row; `source` and `target` are machine and address, `translated` is the target at the peer.

    `answer_us` is the time to the first answer, None without one: a store's arrival, a descriptor's
    completion word, a doorbell's interrupt. `until` names the kind of answer.
    """

    activity: Activity
    what: str
    bytes: int
    source: str
    target: str
    translated: str
    until: str
    answer_us: float | None


def bridge_row(activity: Activity) -> BridgeRow | None:
    """Make the row of an activity; None for other functions and for accesses without effect."""
    if model_of(activity.device).is_adapter:
        return None
    kind = activity.kind
    if kind not in SHOWN and not (
        kind is ActivityKind.ACCESS
        and (len(activity.transactions) > 1 or activity.title.startswith(SCRATCHPAD))
    ):
        return None
    if kind is ActivityKind.STORE:
        return _of_window(activity)
    if kind is ActivityKind.DESCRIPTOR:
        return _of_descriptor(activity)
    return _of_registers(activity)


def _place(one: Transaction) -> str:
    if one.role is Role.INTERRUPT:
        return f"{host_of(one.device)} interrupt {one.address:#x}"
    return f"{host_of(one.device)} {one.address:#x}"


def _since(activity: Activity, one: Transaction | None) -> float | None:
    return None if one is None else (one.time - activity.begin) * 1e6


def _of_window(activity: Activity) -> BridgeRow:
    parts = activity.transactions
    root = next(one for one in parts if one.role in (Role.WINDOW_STORE, Role.WINDOW_LOAD))
    arrivals = [one for one in parts if one.parent is not None]
    store = root.role is Role.WINDOW_STORE
    answer = arrivals[0] if arrivals and store else None  # a load is logged when it is answered
    return BridgeRow(
        activity,
        "store" if store else "load",
        root.length,
        host_of(root.device),
        f"BAR{root.bar}+{root.address:#x}",
        _place(arrivals[0]) if arrivals else "-",
        ANSWERS[ActivityKind.STORE] if store else "",
        _since(activity, answer),
    )


def _of_descriptor(activity: Activity) -> BridgeRow:
    parts = activity.transactions
    reads = [one for one in parts if one.role is Role.COPY_READ]
    writes = [one for one in parts if one.role is Role.COPY_WRITE]
    done = next((one for one in parts if one.role is Role.COMPLETION_WORD), None)
    source = _place(reads[0]) if reads else host_of(activity.device)
    if beyond := _beyond(parts, Tlp.MEMORY_READ):
        source += f" ({beyond})"
    return BridgeRow(
        activity,
        "descriptor",
        sum(one.length for one in writes),
        source,
        f"{writes[0].address:#x}" if writes else "-",
        _beyond(parts, Tlp.MEMORY_WRITE) or "-",
        ANSWERS[ActivityKind.DESCRIPTOR],
        _since(activity, done),
    )


def _beyond(parts: list[Transaction], tlp: Tlp) -> str:
    """Return where the first bytes are read or written at the peer; empty if nowhere."""
    return next((_place(one) for one in parts if one.remote and one.tlp is tlp), "")


def _of_registers(activity: Activity) -> BridgeRow:
    root = activity.transactions[0]
    doorbell = activity.kind is ActivityKind.DOORBELL
    interrupt = None
    if doorbell:
        rung = (one for one in activity.transactions if one.role is Role.INTERRUPT)
        interrupt = next(rung, None)
    notes = [one.text for one in activity.transactions[1:] if one.role is Role.NOTE]
    effect = ", ".join(notes[:3]) or "-"
    if interrupt is not None:
        effect = f"{host_of(interrupt.device)} vector {interrupt.address}"
    return BridgeRow(
        activity,
        _what(activity),
        root.length if root.tlp is not Tlp.NONE else 0,
        host_of(activity.device),
        activity.title,
        effect,
        ANSWERS[activity.kind] if doorbell else "",
        _since(activity, interrupt),
    )


def _what(activity: Activity) -> str:
    if activity.kind is not ActivityKind.ACCESS:
        return str(activity.kind.value)
    return SCRATCHPAD.strip() if activity.title.startswith(SCRATCHPAD) else "set-up"
