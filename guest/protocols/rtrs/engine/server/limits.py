"""The sizes of a server's queue pairs and of its registrations."""

from __future__ import annotations

from bluebridge.device.layout.net.rtrs import (
    MAX_QUEUE_DEPTH,
    MIN_CHUNK_SIZE,
    PAYLOAD_BITS,
    SERVICE_QUEUE_DEPTH,
)
from bluebridge.guest.protocols.rtrs.engine.actions import Limits
from bluebridge.guest.protocols.rtrs.engine.settings import ServerSettings


def check(settings: ServerSettings) -> None:
    """Raise `ValueError` for settings with which the kernel's module would not load."""
    depth, size = settings.queue_depth, settings.max_chunk_size
    if not 1 <= depth <= MAX_QUEUE_DEPTH:
        raise ValueError(f"queue depth {depth} is not 1 to {MAX_QUEUE_DEPTH}")
    if size < MIN_CHUNK_SIZE or size & (size - 1):
        raise ValueError(f"{size} is no power of two of at least {MIN_CHUNK_SIZE}")
    if (depth - 1).bit_length() + (size - 1).bit_length() > PAYLOAD_BITS:
        raise ValueError(f"{depth} chunks of {size} bytes are too many for an immediate")


def limits(cid: int, settings: ServerSettings) -> Limits:
    """Return the sizes of a connection's queue pair, as the kernel's server has them.

    Connection 0: a request and an end of key for each, 2 for draining and heartbeats. Others: the
    end of a chunk's key, data, end of the client's key, new key, response.
    """
    depth, most = settings.queue_depth, settings.max_work_requests
    if not cid:
        size = min(most, SERVICE_QUEUE_DEPTH * 2 + 2)
        return Limits(size, size, 1)
    sends = depth * (5 if settings.always_invalidate else 3) + 1
    return Limits(min(most, sends), min(most, depth + 1), 1)


def chunks_per_region(settings: ServerSettings) -> int:
    """Return the number of chunks per registration.

    It is 1 where each chunk is invalidated by itself, else as many as one registration can have. It
    divides the number of chunks, since clients refuse others.
    """
    if settings.always_invalidate:
        return 1
    depth = settings.queue_depth
    most = min(depth, settings.max_chunks_per_region)
    return next(count for count in range(most, 0, -1) if depth % count == 0)
