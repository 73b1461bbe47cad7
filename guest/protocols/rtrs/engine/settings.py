"""The settings of an engine: the kernel's constants and module parameters as defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from bluebridge.device.layout.net.rtrs import DEFAULT_PORT


@dataclass(frozen=True)
class Timing:
    """The times of an engine in seconds, as in the kernel's rtrs-pri.h and rtrs-clt.c."""

    heartbeat: float = 5.0
    """The time between two heartbeats, in seconds."""
    missed_heartbeats: int = 5
    """So many intervals may pass without a word from the peer."""
    connect: float = 30.0
    """Limit for one connection, for INFO_RSP, and for the peer's word that it has disconnected."""
    backoff: float = 1.0
    """Pause in front of every attempt to connect again."""
    jitter: float = 0.008
    """Upper bound of a random pause added to `reconnect_delay`."""
    establish: float = 30.0
    """Server: limit from a path's first connection to its INFO_REQ; none in Linux 6.12."""


@dataclass(frozen=True)
class ClientSettings:
    """The settings of a client's session."""

    port: int = DEFAULT_PORT
    cpus: int = 1
    """Connections of a path besides connection 0: one for each CPU."""
    reconnect_delay: float = 30.0
    """Seconds between two attempts to connect again; 30 as RNBD's client."""
    max_reconnect_attempts: int = -1
    """The number of attempts to connect a path again; -1 for no limit."""
    mp_policy: str = "min-inflight"
    need_inval: bool = True
    """Every read gets a new key that the server invalidates, as the kernel's client does.

    False: a slot is registered once for the life of a path.
    """
    max_segments: int = 128
    """Pages of 4 KiB of one request, which bounds what a server's `max_io_size` gives."""
    max_work_requests: int = 16351
    """The work requests of a send or receive queue that the device can have."""
    timing: Timing = field(default_factory=Timing)


@dataclass(frozen=True)
class ServerSettings:
    """The settings of a server."""

    queue_depth: int = 512
    """Chunks of a session, 1 to 65535."""
    max_chunk_size: int = 128 << 10
    """Bytes of a chunk, a power of two, at least 8192."""
    max_header_size: int = 4096
    """Bytes of a chunk that are kept for the messages."""
    always_invalidate: bool = True
    """A chunk's key ends before its request is read, and each response brings a new one."""
    max_chunks_per_region: int = 511
    """Without `always_invalidate`: chunks that one registration can have."""
    max_work_requests: int = 16351
    """The work requests of a send or receive queue that the device can have."""
    timing: Timing = field(default_factory=Timing)
