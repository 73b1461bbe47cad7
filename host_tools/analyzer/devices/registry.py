"""The registry of device models: a card is a row here, a bridge one of `layout.ntb.models`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from bluebridge.device import cards
from bluebridge.device.buslog.names import DeviceName
from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout import ioat
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.ntb.models import MODELS as BRIDGES
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.host_tools.analyzer.devices.mlx4 import MLX4
from bluebridge.host_tools.analyzer.devices.mlx5 import MLX5
from bluebridge.host_tools.analyzer.devices.model import Adapter, DeviceKind, DeviceModel, named

CARDS: dict[str, DeviceModel] = {cards.CONNECTX3.name: MLX4, cards.CONNECTX5.name: MLX5}
"""Models of adapters by the name of their card."""


def _descriptor(event: Event) -> str:
    data = event.data
    if len(data) < ioat.DESCRIPTOR_SIZE:
        return f"descriptor of channel {event.obj}"
    get = ioat.DESCRIPTOR.get
    marks = [name for name in ("null", "interrupt", "completion_write", "fence") if get(data, name)]
    name = named(ioat.Operation, get(data, "operation"))
    what = f"{name} {get(data, 'source'):#x} > {get(data, 'destination'):#x}"
    what = "" if get(data, "null") else f"{what} bytes={get(data, 'size')} "
    return f"descriptor channel={event.obj} {what}{' '.join(marks)}".strip()


def _completion(event: Event) -> str:
    if len(event.data) < ioat.COMPLETION.size:
        return f"completion of channel {event.obj}"
    name = named(ioat.State, ioat.COMPLETION.get(event.data, "state"))
    last = ioat.COMPLETION.get(event.data, "descriptor") << 6
    return f"completion channel={event.obj} {name} descriptor={last:#x}"


IOAT = DeviceModel(
    DeviceKind.ENGINE,
    ioat.LOG_SUFFIX,
    "I/OAT engine",
    {0: ioat.BLOCKS},
    words={What.DESCRIPTOR: _descriptor, What.COMPLETION: _completion},
)


def bridge_row(model: BridgeModel) -> DeviceModel:
    """Make the row of a bridge model."""
    return DeviceModel(
        DeviceKind.BRIDGE,
        model.log_suffix,
        f"bridge, {model.name}",
        {0: model.blocks},
        config=model.uses.config,
        uses=model.uses,
    )


MODELS = {row.suffix: row for row in (MLX4, IOAT, *map(bridge_row, BRIDGES))}
"""Device models by the suffix after the dot in a device's name in the log."""


def model_of(device: str) -> DeviceModel:
    """Return the model of a device, by its name in the log, or the card that its log gives it."""
    if isinstance(device, DeviceName) and device.card in CARDS:
        return CARDS[device.card]
    return _by_name(device)


@lru_cache(maxsize=256)
def _by_name(device: str) -> DeviceModel:
    """Return the model of a device by nothing but its name.

    `a.ntb4-2` is the second bridge of that model in guest a. A name that says nothing of a model,
    such as `a`, `b/2` or `a.1`, is that of a ConnectX-3.
    """
    suffix = device.rpartition(".")[2].partition("-")[0] if "." in device else ""
    return MODELS.get(suffix, MLX4)


def adapter_of(device: str) -> Adapter:
    """Return the forms of a device's queues; those of a ConnectX-3 for one without any."""
    found = model_of(device).adapter or MLX4.adapter
    assert found is not None
    return found


def beyond_adapters(devices: Iterable[str]) -> bool:
    """Return whether bridges or DMA engines are among the devices of a log."""
    return not all(model_of(device).is_adapter for device in devices)
