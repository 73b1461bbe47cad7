"""Faults by name of bridges of all models, armed over the control socket of the real server."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from bluebridge.device.layout.ntb.models import MODELS, BridgeModel
from bluebridge.host_tools.lab.hardware import Hardware, tell
from bluebridge.host_tools.vfio_user.bus import Ram
from tests.models.function import WireFunction
from tests.models.server import devices
from tests.models.until import until
from tests.wire.bridge_traffic import BARS, HEARD, MASKED, connected


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_doorbell_and_a_store_get_lost(tmp_path: Path, model: BridgeModel) -> None:
    hardware = Hardware(lambda line: tell(tmp_path / "control", line))
    with devices(tmp_path, "--ntb-model", model.name, kinds=("ntb",)), ExitStack() as stack:
        functions = []
        for name in "ab":
            ram = Ram()
            stack.callback(ram.close)
            functions.append(WireFunction(tmp_path / name, ram, BARS))
        a, b = connected(model, functions, stack)
        memory = b.function.allocate(1 << 20, 1 << 20)
        b.show(memory.address, 0x2000)
        a.ring(HEARD)
        until(lambda: b.rung() == HEARD)
        with hardware.fault("a", "ntb-doorbell-lost") as lost:
            a.ring(MASKED)
            a.ring(MASKED << 1)
            until(lambda: b.rung() == HEARD | MASKED << 1)
            assert lost.taken == 1
        a.function.store_bytes(a.bar, 0, b"first...")
        with hardware.fault("a", "ntb-window-refused"):
            a.function.store_bytes(a.bar, 0, b"second..")
            assert a.function.load_bytes(a.bar, 0, 8) == b"\xff" * 8
        assert a.function.load_bytes(a.bar, 0, 8) == b"first..."
