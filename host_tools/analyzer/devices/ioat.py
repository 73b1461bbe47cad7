"""The row of I/OAT engines: registers, descriptors, completion words."""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.ioat import registers as ioat
from bluebridge.device.layout.ioat.descriptor import (
    COMPLETION,
    DESCRIPTOR,
    DESCRIPTOR_SIZE,
    Operation,
)
from bluebridge.host_tools.analyzer.devices.model import DeviceKind, DeviceModel, named


def _descriptor(event: Event) -> str:
    data = event.data
    if len(data) < DESCRIPTOR_SIZE:
        return f"descriptor of channel {event.obj}"
    get = DESCRIPTOR.get
    marks = [name for name in ("null", "interrupt", "completion_write", "fence") if get(data, name)]
    name = named(Operation, get(data, "operation"))
    what = f"{name} {get(data, 'source'):#x} > {get(data, 'destination'):#x}"
    what = "" if get(data, "null") else f"{what} bytes={get(data, 'size')} "
    return f"descriptor channel={event.obj} {what}{' '.join(marks)}".strip()


def _completion(event: Event) -> str:
    if len(event.data) < COMPLETION.size:
        return f"completion of channel {event.obj}"
    name = named(ioat.State, COMPLETION.get(event.data, "state"))
    last = COMPLETION.get(event.data, "descriptor") << 6
    return f"completion channel={event.obj} {name} descriptor={last:#x}"


IOAT = DeviceModel(
    DeviceKind.ENGINE,
    ioat.LOG_SUFFIX,
    "I/OAT engine",
    {0: ioat.BLOCKS},
    words={What.DESCRIPTOR: _descriptor, What.COMPLETION: _completion},
)
