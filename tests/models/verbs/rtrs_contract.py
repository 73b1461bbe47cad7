"""What RTRS does on every provider of verbs: it knows none of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings, Timing
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from tests.models.verbs.rtrs_pair import rtrs_pair

SERVER, CLIENT = "10.9.0.1", "10.9.0.2"
PATH = AddressPair(CLIENT, SERVER)
TIMING = Timing(backoff=0.05, jitter=0.001)
SMALL = ServerSettings(queue_depth=16, max_chunk_size=1 << 15, timing=TIMING)
LIKELY = ClientSettings(cpus=2, reconnect_delay=0.1, timing=TIMING)


class RtrsContract:
    """Tests of a server's interfaces and a client's; a class derives from it and has `ends`."""

    @pytest.mark.parametrize("always_invalidate", [True, False])
    @pytest.mark.parametrize("need_inval", [True, False])
    def test_blocks_come_back_as_they_were_written(
        self, ends: tuple[Interfaces, Interfaces], *, always_invalidate: bool, need_inval: bool
    ) -> None:
        """With each way of ending keys, on the server and on the client."""
        client = replace(LIKELY, need_inval=need_inval)
        server = replace(SMALL, always_invalidate=always_invalidate)
        with rtrs_pair(*ends, client, server) as pair:
            assert pair.open([PATH]) == 0
            assert pair.server_user.sessions == ["clt"]
            for length, count in ((4096, 100), (28 << 10, 20)):
                totals = pair.finish(pair.start_traffic(count, length, depth=8))
                assert (totals.errors, totals.mismatches, totals.requests) == (0, 0, 2 * count)
            pair.close()
            assert pair.server_user.ended == 1
