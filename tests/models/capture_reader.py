"""Reads pcapng files and the packets in them, on its own: nothing here comes from `device`.

What it checks of every packet it says with assertions: lengths, checksums, CRCs, padding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from struct import unpack, unpack_from

ETHERNET, ERF = 1, 197
_RETH, _AETH, _ATOMIC, _ATOMIC_ACK, _IMM, _IETH, _DETH = 16, 4, 28, 8, 4, 4, 8

EXTENSIONS: dict[int, tuple[str, ...]] = {  # by operation: InfiniBand vol. 1, table 38
    0x00: (), 0x01: (), 0x02: (), 0x03: ("imm",), 0x04: (), 0x05: ("imm",),
    0x06: ("reth",), 0x07: (), 0x08: (), 0x09: ("imm",), 0x0A: ("reth",), 0x0B: ("reth", "imm"),
    0x0C: ("reth",), 0x0D: ("aeth",), 0x0E: (), 0x0F: ("aeth",), 0x10: ("aeth",), 0x11: ("aeth",),
    0x12: ("aeth", "atomic_ack"), 0x13: ("atomic",), 0x14: ("atomic",),
    0x16: ("ieth",), 0x17: ("ieth",),
}  # fmt: skip
SIZES = {
    "reth": _RETH, "aeth": _AETH, "atomic": _ATOMIC, "atomic_ack": _ATOMIC_ACK, "imm": _IMM,
    "ieth": _IETH, "deth": _DETH, "xrceth": 4,
}  # fmt: skip


@dataclass
class Captured:
    """A frame as the file holds it."""

    interface: str
    link: int
    time_ns: int
    data: bytes
    length: int
    comment: str = ""


@dataclass
class Parsed:
    """An RDMA packet, taken to pieces; `whole` says whether nothing is missing of it."""

    network: str
    opcode: int
    flags: int
    pkey: int
    target: int
    ack: bool
    psn: int
    extensions: dict[str, bytes]
    payload: bytes
    whole: bool
    smac: bytes = b""
    dmac: bytes = b""
    vlan: int | None = None
    gids: bytes = b""
    headers: dict[str, bytes] = field(default_factory=dict)

    @property
    def pad(self) -> int:
        """Pad count."""
        return self.flags >> 4 & 3


def read_file(path: Path) -> list[Captured]:
    """The frames of a pcapng file, in order; every block must be well formed."""
    data = path.read_bytes()
    assert data[:4] == bytes.fromhex("0a0d0d0a")
    position, names, frames = 0, list[tuple[str, int]](), list[Captured]()
    while position < len(data):
        kind, size = unpack_from("<II", data, position)
        assert size % 4 == 0 and unpack_from("<I", data, position + size - 4) == (size,)
        body = data[position + 8 : position + size - 4]
        position += size
        if kind == 1:
            link, _, limit = unpack_from("<HHI", body)
            options = _options(body[8:])
            assert (limit, options[9]) == (0, b"\x09")
            names.append((options[2].decode(), link))
        elif kind == 6:
            number, high, low, kept, length = unpack_from("<5I", body)
            end = 20 + (kept + 3 & ~3)
            comment = _options(body[end:]).get(1, b"").decode()
            name, link = names[number]
            frame = body[20 : 20 + kept]
            frames.append(Captured(name, link, high << 32 | low, frame, length, comment))
    return frames


def _options(data: bytes) -> dict[int, bytes]:
    found, position = dict[int, bytes](), 0
    while position < len(data):
        code, size = unpack_from("<HH", data, position)
        if not code:
            break
        found[code] = data[position + 4 : position + 4 + size]
        position += 4 + (size + 3 & ~3)
    return found


def bitwise_crc(data: bytes, polynomial: int, width: int) -> int:
    """A reflected CRC, all ones before and complemented after, one bit at a time."""
    ones = (1 << width) - 1
    value = ones
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
    return value ^ ones


def crc32(data: bytes) -> bytes:
    """The CRC of Ethernet, as it stands on the wire."""
    return bitwise_crc(data, 0xEDB88320, 32).to_bytes(4, "little")


def checksum(data: bytes) -> int:
    """The Internet checksum over whole 16-bit words; 0 for data that hold their own."""
    data += bytes(len(data) & 1)
    total: int = sum(unpack(f">{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def parse(frame: Captured) -> Parsed | None:
    """An RDMA packet with all its checks; None for another Ethernet frame."""
    if frame.link == ERF:
        return _infiniband(frame)
    data, position, vlan = frame.data, 14, None
    assert frame.length >= 60
    kind = int.from_bytes(data[12:14], "big")
    if kind == 0x8100:
        vlan, kind = unpack_from(">HH", data, 14)
        position = 18
    if kind == 0x8915:
        found = _grh(data, position, frame, frame.length)
    elif kind in (0x0800, 0x86DD) and _is_roce(data, position, kind):
        found = _udp(data, position, frame, kind)
    else:
        return None
    found.dmac, found.smac, found.vlan = data[:6], data[6:12], vlan
    return found


def _is_roce(data: bytes, position: int, kind: int) -> bool:
    size, where = (20, 9) if kind == 0x0800 else (40, 6)
    port = int.from_bytes(data[position + size + 2 : position + size + 4], "big")
    return data[position + where] == 17 and port == 4791


def _grh(data: bytes, start: int, frame: Captured, end: int, lrh: bytes = b"\xff" * 8) -> Parsed:
    grh = data[start : start + 40]
    word, length, following, _ = unpack_from(">IHBB", grh)
    assert (word >> 28, following) == (6, 0x1B)
    assert start + 40 + length == end or end == 60 > start + 40 + length
    masked = lrh + _mask(grh, (0, b"\x6f\xff\xff\xff"), (7, b"\xff"))
    found = _transport(data, start + 40, length, masked, frame)
    found.network, found.gids, found.headers["grh"] = "v1", grh[8:40], grh
    return found


def _udp(data: bytes, start: int, frame: Captured, kind: int) -> Parsed:
    size = 20 if kind == 0x0800 else 40
    ip, udp = data[start : start + size], data[start + size : start + size + 8]
    length = int.from_bytes(udp[4:6], "big")
    assert int.from_bytes(udp[:2], "big") >= 0xC000
    if kind == 0x0800:
        assert ip[0] == 0x45 and checksum(ip) == 0 and udp[6:] == b"\0\0"
        assert int.from_bytes(ip[2:4], "big") == size + length
        masked = _mask(ip, (1, b"\xff"), (8, b"\xff"), (10, b"\xff\xff"))
        gids = b"".join(bytes(10) + b"\xff\xff" + ip[at : at + 4] for at in (12, 16))
    else:
        assert int.from_bytes(ip[4:6], "big") == length
        masked = _mask(ip, (0, b"\x6f\xff\xff\xff"), (7, b"\xff"))
        gids = ip[8:40]
        if len(frame.data) == frame.length:
            pseudo = gids + length.to_bytes(4, "big") + b"\0\0\0\x11"
            assert checksum(pseudo + data[start + size : start + size + length]) == 0
    assert frame.length == max(60, start + size + length)
    masked = b"\xff" * 8 + masked + _mask(udp, (6, b"\xff\xff"))
    found = _transport(data, start + size + 8, length - 8, masked, frame)
    found.network = "v2-ipv4" if kind == 0x0800 else "v2-ipv6"
    found.gids, found.headers["ip"] = gids, ip
    return found


def _infiniband(frame: Captured) -> Parsed:
    """An ERF record: 16 bytes, LRH, perhaps GRH, transport, VCRC."""
    stamp, kind, flags, size, _, length = unpack(">8sBBHHH", frame.data[:16])
    fraction, seconds = unpack("<II", stamp)
    assert abs(seconds * 10**9 + (fraction * 10**9 >> 32) - frame.time_ns) <= 1
    assert (kind, flags, size, length) == (21, 4, len(frame.data), frame.length - 16)
    data = frame.data[16:]
    words = int.from_bytes(data[4:6], "big")
    assert words * 4 + 2 == length
    lrh = _mask(data[:8], (0, bytes((data[0] | 0xF0,))))
    if len(data) == length:
        assert data[-2:] == bitwise_crc(data[:-2], 0xD008, 16).to_bytes(2, "little")
    if data[1] & 3 == 3:
        found = _grh(data, 8, frame, length - 2, lrh)
        found.network = "ib-grh"
    else:
        found = _transport(data, 8, length - 2 - 8, lrh, frame)
        found.network = "ib"
    found.headers["lrh"] = data[:8]
    return found


def _transport(data: bytes, start: int, length: int, before: bytes, frame: Captured) -> Parsed:
    """From the BTH to the ICRC, `length` bytes of which all or some are there."""
    assert length % 4 == 0
    opcode, flags, pkey, qpn, word = unpack_from(">BBHII", data, start)
    assert flags & 0x0F == 0 and qpn >> 24 == 0 and word >> 24 & 0x7F == 0
    position, extensions = start + 12, dict[str, bytes]()
    names = EXTENSIONS[opcode & 0x1F]
    if opcode >> 5 == 3:
        names = ("deth", *names)
    elif opcode >> 5 == 5 and not 0x0D <= opcode & 0x1F <= 0x12:
        names = ("xrceth", *names)
    for name in names:
        extensions[name] = data[position : position + SIZES[name]]
        position += SIZES[name]
    end, pad = start + length - 4, flags >> 4 & 3
    whole = len(frame.data) == frame.length
    if whole:
        masked = _mask(data[start:end], (4, b"\xff"))
        assert data[end : end + 4] == crc32(before + masked)
        assert data[end - pad : end] == bytes(pad)
        payload = data[position : end - pad]
    else:
        payload = data[position:]
        assert len(payload) < end - pad - position
    return Parsed(
        "", opcode, flags, pkey, qpn, bool(word >> 31), word & 0xFFFFFF, extensions, payload, whole
    )


def _mask(data: bytes, *patches: tuple[int, bytes]) -> bytes:
    changed = bytearray(data)
    for position, patch in patches:
        changed[position : position + len(patch)] = patch
    return bytes(changed)
