"""The guest kernel's own record of register accesses is the bus log's, one by one."""

from __future__ import annotations

from pathlib import Path

from bluebridge.device.layout.mlx4.uar import BLUEFLAME
from bluebridge.host_tools.errors import Reporter
from bluebridge.host_tools.mmiotrace.mmiotrace_command import TRACE, record
from bluebridge.host_tools.mmiotrace.trace import parse


def test_every_access_of_the_kernels_drivers_is_in_the_log_in_order(tmp_path: Path) -> None:
    """From mlx4_core's first read to the last write of its unloading, BlueFlame stores and all."""
    verdict = record(Reporter(quiet=True), log=tmp_path)
    assert verdict.same, verdict.text()
    assert verdict.matched == verdict.traced == verdict.logged > 2000
    assert verdict.reads > 100
    assert verdict.table > 0 < verdict.user
    assert verdict.unseen == 0
    stores = [
        each
        for each in parse((tmp_path / TRACE).read_text()).accesses
        if each.bar == BLUEFLAME.bar and each.offset >= BLUEFLAME.base
    ]
    assert len(stores) > 8 and all(each.write and len(each.data) == 8 for each in stores)
