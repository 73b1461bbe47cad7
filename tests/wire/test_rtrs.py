"""RTRS over the HCAs of the device server: the guest's engines, verbs and CM, without guests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bluebridge.guest.rtrs.engine.actions import AddressPair
from bluebridge.guest.rtrs.engine.settings import ClientSettings, ServerSettings, Timing
from tests.wire.rtrs_pair import rtrs_pair
from tests.wire.server import ServerProcess

SERVER, CLIENT = "10.9.0.1", "10.9.0.2"
PATH = AddressPair(CLIENT, SERVER)
TIMING = Timing(backoff=0.05, jitter=0.001)
SMALL = ServerSettings(queue_depth=16, max_chunk_size=1 << 15, timing=TIMING)
LIKELY = ClientSettings(cpus=2, reconnect_delay=0.1, timing=TIMING)


@pytest.mark.parametrize("always_invalidate", [True, False])
@pytest.mark.parametrize("need_inval", [True, False])
def test_blocks_come_back_as_they_were_written(
    hca_server: tuple[ServerProcess, Path], *, always_invalidate: bool, need_inval: bool
) -> None:
    _, folder = hca_server
    with rtrs_pair(
        {SERVER: folder / "a"},
        {CLIENT: folder / "b"},
        replace(LIKELY, need_inval=need_inval),
        replace(SMALL, always_invalidate=always_invalidate),
    ) as pair:
        assert pair.open([PATH]) == 0
        assert pair.server_user.sessions == ["clt"]
        totals = pair.finish(pair.start_traffic(count=100, length=4096, depth=8))
        assert (totals.errors, totals.mismatches, totals.requests) == (0, 0, 200)
        pair.close()
        assert pair.server_user.ended == 1
