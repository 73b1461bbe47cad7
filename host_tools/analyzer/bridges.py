"""Registers and descriptors of bridges and DMA engines, in words."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.fields import RegisterBlock
from bluebridge.device.layout.ioat import registers as ioat
from bluebridge.device.layout.ioat.descriptor import (
    COMPLETION,
    DESCRIPTOR,
    DESCRIPTOR_SIZE,
    Operation,
)
from bluebridge.device.layout.ioat.registers import State
from bluebridge.device.layout.ntb.models import BY_LOG_SUFFIX

if TYPE_CHECKING:
    from bluebridge.device.buslog.reader import Event

FAMILIES: dict[str, dict[int, tuple[RegisterBlock, ...]]] = {
    **{suffix: {0: model.blocks} for suffix, model in BY_LOG_SUFFIX.items()},
    ioat.LOG_SUFFIX: {0: ioat.BLOCKS},
}
"""Register blocks by BAR, by what follows the dot in a device's name in the log."""


@lru_cache(maxsize=256)
def family(device: str) -> str:
    """What the name of a device says of its kind; empty for an HCA."""
    suffix = device.rpartition(".")[2].partition("-")[0] if "." in device else ""
    return suffix if suffix in FAMILIES else ""


def register(event: Event, blocks: dict[int, tuple[RegisterBlock, ...]]) -> str:
    """An access of a register, or of a window."""
    if event.bar not in blocks:
        return f"window BAR{event.bar} at {event.address:#x}"
    for block in blocks[event.bar]:
        found = block.find(event.address)
        if found is not None:
            index, item = found
            place = f"{block.name}[{index}]" if block.stride else block.name
            if event.length * 8 != item.width:
                return f"{place}.{item.name} part={event.data.hex()}"
            return f"{place}.{item.decode(int.from_bytes(event.data, block.order))}"
    return f"BAR{event.bar}+{event.address:#x}"


def _descriptor(event: Event) -> str:
    data = event.data
    if len(data) < DESCRIPTOR_SIZE:
        return f"descriptor of channel {event.obj}"
    get = DESCRIPTOR.get
    marks = [name for name in ("null", "interrupt", "completion_write", "fence") if get(data, name)]
    operation = get(data, "operation")
    name = Operation(operation).name if operation in tuple(Operation) else f"{operation:#x}"
    what = f"{name} {get(data, 'source'):#x} > {get(data, 'destination'):#x}"
    what = "" if get(data, "null") else f"{what} bytes={get(data, 'size')} "
    return f"descriptor channel={event.obj} {what}{' '.join(marks)}".strip()


def _completion(event: Event) -> str:
    if len(event.data) < COMPLETION.size:
        return f"completion of channel {event.obj}"
    state = COMPLETION.get(event.data, "state")
    name = State(state).name if state in tuple(State) else hex(state)
    last = COMPLETION.get(event.data, "descriptor") << 6
    return f"completion channel={event.obj} {name} descriptor={last:#x}"


def _window(event: Event) -> str:
    way = "into" if event.kind == Kind.DMA_WRITE else "out of"
    return f"through the peer's window {way} {event.address:#x}"


DMA: dict[What, Callable[[Event], str]] = {
    What.DESCRIPTOR: _descriptor,
    What.COMPLETION: _completion,
    What.COPY: lambda event: f"copy channel={event.obj}",
    What.WINDOW: _window,
    What.MESSAGE: lambda event: f"interrupt message {event.data[::-1].hex()}",
}
