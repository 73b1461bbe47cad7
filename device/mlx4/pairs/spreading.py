"""Receive side scaling as the context of an indirection queue pair describes it."""

from __future__ import annotations

from typing import Final

from bluebridge.device.ethernet.frames.receiving import (
    HASH_IPV4,
    HASH_IPV6,
    HASH_TCP_IPV4,
    HASH_TCP_IPV6,
    HASH_UDP_IPV4,
    HASH_UDP_IPV6,
    Spreader,
)
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import RSS, RSS_HASHES, RSS_OFFSET, RssFlag
from bluebridge.device.mlx4.settings.capabilities import LOG_RSS_TABLE
from bluebridge.device.mlx4.settings.refusal import CommandError

HASH_XOR: Final = 0
_HASHED: Final = {
    int(RssFlag.IPV4): HASH_IPV4,
    int(RssFlag.IPV6): HASH_IPV6,
    int(RssFlag.TCP_IPV4): HASH_TCP_IPV4,
    int(RssFlag.TCP_IPV6): HASH_TCP_IPV6,
    int(RssFlag.UDP_IPV4): HASH_UDP_IPV4,
    int(RssFlag.UDP_IPV6): HASH_UDP_IPV6,
}


def spreader_of(context: bytes | bytearray) -> Spreader:
    """Return the spreader that an RSS context asks for.

    Raises `CommandError` (BAD_PARAM) for what QUERY_DEV_CAP does not offer: a larger table,
    another hash, headers inside of tunnels (Linux `mlx4_en.h: MLX4_RSS_BY_INNER_HEADERS`).
    """
    get = RSS.get
    log_size = get(context, "log_table_size", RSS_OFFSET)
    if log_size > LOG_RSS_TABLE:
        raise CommandError(Status.BAD_PARAM, f"an RSS table of 2^{log_size} entries")
    function = get(context, "hash_fn", RSS_OFFSET)
    if function not in RSS_HASHES:
        raise CommandError(Status.BAD_PARAM, f"RSS hash function {function}")
    flags = get(context, "flags", RSS_OFFSET)
    if flags & ~sum(_HASHED):
        raise CommandError(Status.BAD_PARAM, f"RSS flags {flags:#x}")
    base = get(context, "base_qpn", RSS_OFFSET)
    return Spreader(
        log_size=log_size,
        base=base,
        base_udp=get(context, "base_qpn_udp", RSS_OFFSET) or base,
        default=get(context, "default_qpn", RSS_OFFSET) or base,
        hashed=sum(hashed for flag, hashed in _HASHED.items() if flags & flag),
        key=None if function == HASH_XOR else RSS.get_raw(context, "key", RSS_OFFSET),
    )
