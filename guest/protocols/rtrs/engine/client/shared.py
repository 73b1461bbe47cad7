"""The state and the permits that the parts of a client's session share."""

from __future__ import annotations

import random
from typing import Final

from bluebridge.device.layout.net.rtrs import NAME_BYTES
from bluebridge.guest.protocols.rtrs.engine.actions import Action, ClientMemory, Direction
from bluebridge.guest.protocols.rtrs.engine.client.messages import Response, new_uuid
from bluebridge.guest.protocols.rtrs.engine.heartbeat import Alarms
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings

NOWHERE: Final = -1
"""The path number of a request whose path broke while no other is connected yet."""


class ClientRequest:
    """The request of a slot, kept until its answer, since another path may repeat it."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.path = 0
        """The number of the path that the request was sent on; 0 when not in flight, or NOWHERE."""
        self.connection = 0
        """The number of the connection that the request was sent on."""
        self.direction = Direction.READ
        self.user = b""
        self.length = 0
        self.cpu = 0
        self.admin = False
        self.counted = False
        """True if the request counts in the path's `inflight`."""
        self.need_inval = False
        """True while the slot's key is not known to have ended."""
        self.invalidating = False
        """True for a request that is answered and waits for the end of its key."""
        self.errno = 0


class Permits:
    """The use of slots as bits; the lowest free one is taken (rtrs-clt.c: __rtrs_get_permit)."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = (1 << count) - 1

    def get(self) -> int | None:
        """Take a slot and return it, None while all are in use."""
        free = self._free
        if not free:
            return None
        lowest = free & -free
        self._free = free ^ lowest
        return lowest.bit_length() - 1

    def put(self, slot: int) -> None:
        """Free a slot; raises `ValueError` if it is free already or does not exist."""
        bit = 1 << slot
        if slot >= self.count or self._free & bit:
            raise ValueError(f"slot {slot} is not in use")
        self._free |= bit

    @property
    def in_use(self) -> int:
        """The number of permits that are given out."""
        return self.count - self._free.bit_count()


PAGE: Final = 4096
LARGEST_HEADER: Final = 4096
"""The most bytes of memory for a slot's header, even if the server takes longer ones."""


class Shared:
    """The common state of one session: name, UUID, slots, outbox and alarms."""

    def __init__(
        self, name: str, memory: ClientMemory, source: random.Random, settings: ClientSettings
    ) -> None:
        self.name = name.encode()
        if not name or "/" in name or "." in name or len(self.name) >= NAME_BYTES:
            raise ValueError(f"{name!r} cannot be the name of a session")
        self.memory = memory
        self.random = source
        self.settings = settings
        self.max_reconnect_attempts = settings.max_reconnect_attempts
        self.uuid = new_uuid(source)
        self.outbox: list[Action] = []
        self.alarms = Alarms()
        self.permits: Permits | None = None
        self.requests: list[ClientRequest] = []
        """The requests by their slot."""
        self.queue_depth = 0
        self.max_io_size = 0
        self.slot_size = 0
        self.header_size = 0
        self._connections = 0

    def new_connection(self) -> int:
        """Return a number for a new connection."""
        self._connections += 1
        return self._connections

    def adopt(self, response: Response) -> None:
        """Make slots of the sizes of the first server; of later sizes, the smallest counts.

        Raises `MemoryError`.
        """
        if not self.queue_depth:
            size = min(response.max_io_size, self.settings.max_segments * PAGE)
            header = min(response.max_header_size, LARGEST_HEADER)
            self.memory.create_slots(response.queue_depth, size, header)
            self.queue_depth = response.queue_depth
            self.max_io_size = self.slot_size = size
            self.header_size = header
            self.permits = Permits(self.queue_depth)
            self.requests = [ClientRequest(slot) for slot in range(self.queue_depth)]
        self.max_io_size = min(self.max_io_size, response.max_io_size)

    def forget_slots(self) -> None:
        """Free the slots, so that another session may be opened."""
        if self.queue_depth:
            self.memory.free_slots()
        self.queue_depth = self.max_io_size = 0
        self.permits = None
        self.requests = []
