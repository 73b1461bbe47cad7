"""Bridges: windows, doorbells, scratchpads; and the channels of DMA engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bluebridge.device.layout.fields import RegisterBlock
from bluebridge.device.layout.ioat.registers import ChannelError, State
from bluebridge.device.layout.ntb import gen1, gen4, models, switchtec
from bluebridge.host_tools.show.item import Item, Kind, Row
from bluebridge.host_tools.show.registers import lines_of, value_at

_DOORBELLS = {
    models.GEN4.name: (gen4.CONTROL, "int_status", "int_disable"),
    models.GEN1.name: (gen1.CONTROL, "doorbell", "doorbell_mask"),
    models.SWITCHTEC.name: (switchtec.MESSAGING, "inbound_doorbell", "inbound_mask"),
}
"""Where a model has the doorbells that the peer has rung, and their mask."""
_SPADS = {models.GEN4.name: gen4.SPAD, models.GEN1.name: gen1.SPAD}
_LIMITS = {
    models.GEN4.name: (gen4.CONTROL, {2: "window0_limit", 4: "window1_limit"}),
    models.GEN1.name: (gen1.CONTROL, {2: "secondary2_limit", 4: "secondary4_limit"}),
}
"""Registers with the end of a window, by its BAR."""
_LINKS = {True: "up", False: "down", None: "kept by software"}


def bridge(row: Row) -> Sequence[Item]:
    """The page of one side of a bridge."""
    lines, model = lines_of(row), row["model"]
    block, pending, mask = _DOORBELLS[model]
    index = row["partition"] or 0
    return [
        {
            "function": row["function"],
            "model": model,
            "link": _LINKS[row["link"]],
            "link-wanted": row["wanted"],
            "partition": row["partition"],
            "locked-up": row["hung"],
            "window": {_name(each): _window(each, model, lines) for each in row["windows"]},
            "doorbell": f"{_named(lines, block, pending, index):#x}",
            "doorbell-mask": f"{_named(lines, block, mask, index):#x}",
            "doorbells-lost": row["lost"],
            "scratchpad": _scratchpads(lines, model),
            "message": _messages(lines, index) if model == models.SWITCHTEC.name else {},
        }
    ]


def _name(window: Row) -> str:
    lut = window["lut"]
    return f"bar{window['bar']}" if lut is None else f"bar{window['bar']}.lut{lut}"


def _window(window: Row, model: str, lines: Mapping[int, bytes]) -> Item:
    """What the peer sees of this guest's memory, and how often it met nothing."""
    limit: Item = {}
    if model in _LIMITS:
        block, names = _LIMITS[model]
        limit["limit"] = f"{_named(lines, block, names[window['bar']]):#x}"
    return {
        "state": "open" if window["length"] else "closed",
        "xlat": f"{window['base']:#x}",
        "size": f"{window['length']:#x}",
        **limit,
        "met-closed": window["closed"],
        "aborts": window["aborts"],
    }


def _named(lines: Mapping[int, bytes], block: RegisterBlock, name: str, index: int = 0) -> int:
    register = next(each for each in block.registers if each.name == name)
    return value_at(lines, block, register, index)


def _scratchpads(lines: Mapping[int, bytes], model: str) -> Item:
    """Those that are not zero, by number."""
    block = _SPADS.get(model)
    if block is None:
        return {}
    values = ((index, _named(lines, block, "spad", index)) for index in range(block.count))
    return {str(index): f"{value:#010x}" for index, value in values if value}


def _messages(lines: Mapping[int, bytes], partition: int) -> Item:
    """Those of the peer that stand in a slot, by slot."""
    found = {}
    for slot in range(switchtec.MESSAGES):
        value = _named(lines, switchtec.MESSAGING, f"inbound{slot}", partition)
        fresh = _named(lines, switchtec.MESSAGING, f"inbound{slot}_status", partition) & 1
        if value or fresh:
            found[str(slot)] = f"{value:#x}{' new' if fresh else ''}"
    return found


def channel(row: Row) -> Sequence[Item]:
    """The page of a channel of a DMA engine."""
    return [
        {
            "function": row["function"],
            "channel": row["channel"],
            "state": State(row["state"]).name.lower(),
            "error": ChannelError(row["error"]).name or "none",
            "chain": row["chain"],
            "next": row["next"],
            "last-done": row["last"],
            "done": row["done"],
            "wanted": row["wanted"],
            "bytes-left": row["copying"],
            "completion": row["completion"],
            "interrupts": bool(row["interrupts"]),
            "interrupt-armed": bool(row["armed"]),
            "suspending": bool(row["suspending"]),
        }
    ]


NTB = Kind("ntb", "bridges", "nothing: a guest has one bridge", bridge, ())
DMA = Kind(
    "dma",
    "channels",
    "a channel, from 0 on",
    channel,
    ("channel",),
    (
        "channel", "state", "error", "chain", "next", "last-done", "done", "wanted", "bytes-left",
        "completion",
    ),
    frozenset(("chain", "next", "last-done", "completion")),
)  # fmt: skip
