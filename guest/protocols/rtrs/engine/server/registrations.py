"""The registrations of a path's chunks, made after INFO_REQ (rtrs-srv.c: process_info_req)."""

from __future__ import annotations

from typing import Final

from bluebridge.guest.protocols.rtrs.engine.actions import Region, Register, WorkRequest
from bluebridge.guest.protocols.rtrs.engine.formats import next_key
from bluebridge.guest.protocols.rtrs.engine.send_queue import FIRST_SLOT_TOKEN, SIGNALED, SendQueue
from bluebridge.guest.protocols.rtrs.engine.server.messages import info_response

REGISTERED: Final = FIRST_SLOT_TOKEN
"""The token of the last registration."""
_AT_ONCE: Final = 128
"""The number of registrations in one chain, which must fit into the send queue."""


class Registrations:
    """The registrations of one path, with their `keys` by region, which requests change later."""

    def __init__(self, path: int, regions: list[Region]) -> None:
        self._path = path
        self._regions = regions
        self.keys = [next_key(region.key) for region in regions]

    def post(self, queue: SendQueue) -> None:
        """Register all chunks; the last registration completes with the token REGISTERED."""
        count = len(self._regions)
        for first in range(0, count, _AT_ONCE):
            some = range(first, min(count, first + _AT_ONCE))
            chain: list[WorkRequest] = [self._register(index, 0) for index in some[:-1]]
            token = REGISTERED if some[-1] == count - 1 else SIGNALED
            queue.post([*chain, self._register(some[-1], token)], True)

    def info_response(self) -> bytes:
        """Return INFO_RSP with all pieces."""
        pairs = zip(self._regions, self.keys, strict=True)
        return info_response([(region.address, key, region.length) for region, key in pairs])

    def _register(self, index: int, token: int) -> Register:
        length = self._regions[index].length
        return Register(self._path, index, self.keys[index], length, True, token)
