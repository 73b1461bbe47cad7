"""Memory of both sides, and keys that are really checked."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.guest.protocols.rtrs.engine.actions import SLOTS, Region

PAGE = 4096


class AccessError(Exception):
    """A key that is not valid, or a range outside of it."""


@dataclass
class Piece:
    """A registration that can be made: memory, and the key under which it is valid, if any."""

    address: int
    view: memoryview
    number: int
    key: int | None = None
    length: int = 0


class Keys:
    """Registrations of one machine: by path and region, and by valid key."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[Piece]] = {}
        self._valid: dict[int, Piece] = {}
        self._last = 0

    def map(self, path: int, parts: list[tuple[int, memoryview]]) -> list[Region]:
        assert path not in self._pieces, "mapped twice"
        self._pieces[path] = []
        regions = []
        for address, view in parts:
            self._last += 1
            self._pieces[path].append(Piece(address, view, self._last))
            regions.append(Region(address, len(view), self._last << 8))
        return regions

    def unmap(self, path: int) -> None:
        for piece in self._pieces.pop(path):
            if piece.key is not None:
                del self._valid[piece.key]

    def register(self, path: int, region: int, key: int, length: int) -> None:
        """REG_MR. Raises `AccessError` if the region has a key, or the key is not its own."""
        piece = self._pieces[path][region]
        if piece.key is not None or key >> 8 != piece.number or length > len(piece.view):
            raise AccessError(f"region {region} of path {path} cannot get key {key:#x}")
        piece.key, piece.length = key, length
        self._valid[key] = piece

    def invalidate(self, key: int) -> None:
        """Raises `AccessError` for a key that is not valid."""
        piece = self._valid.pop(key, None)
        if piece is None:
            raise AccessError(f"key {key:#x} is not valid")
        piece.key = None

    def write(self, key: int, address: int, data: bytes | memoryview) -> None:
        """RDMA WRITE. Raises `AccessError`."""
        piece = self._valid.get(key)
        if piece is None:
            raise AccessError(f"key {key:#x} is not valid")
        start = address - piece.address
        if start < 0 or start + len(data) > piece.length:
            raise AccessError(f"{len(data)} bytes at {start} of {piece.length}")
        piece.view[start : start + len(data)] = data

    @property
    def count(self) -> int:
        """Paths that have registrations."""
        return len(self._pieces)


class Slots:
    """A `Memory` of a client."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.data: list[bytearray] = []
        self.headers: list[bytes] = []
        self._base = 0x10000

    def create(self, session: int, count: int, size: int, header_size: int = 0) -> None:
        assert session == SLOTS
        assert not self.data, "slots are there"
        self.data = [bytearray(size) for _slot in range(count)]
        self.headers = [b""] * count

    def free(self, session: int) -> None:
        assert not self.keys.count, "slots are mapped"
        self.data, self.headers = [], []

    def read(self, session: int, piece: int, offset: int, length: int) -> bytes:
        raise NotImplementedError

    def map(self, path: int, connection: int, session: int, per_region: int) -> list[Region]:
        parts = []
        for data in self.data:
            parts.append((self._base, memoryview(data)))
            self._base += len(data) + PAGE
        return self.keys.map(path, parts)

    def unmap(self, path: int) -> None:
        self.keys.unmap(path)


class Chunks:
    """A `Memory` of a server."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.data: dict[int, memoryview] = {}
        self.size = 0
        self._base = 0x80000000

    def create(self, session: int, count: int, size: int, header_size: int = 0) -> None:
        self.data[session] = memoryview(bytearray(count * size))
        self.size = size

    def free(self, session: int) -> None:
        del self.data[session]

    def chunk(self, session: int, chunk: int) -> memoryview:
        return self.data[session][chunk * self.size : (chunk + 1) * self.size]

    def read(self, session: int, piece: int, offset: int, length: int) -> bytes:
        assert offset >= 0 and offset + length <= self.size
        return bytes(self.chunk(session, piece)[offset : offset + length])

    def map(self, path: int, connection: int, session: int, per_region: int) -> list[Region]:
        """Registrations of `per_region` chunks each."""
        whole, step = self.data[session], per_region * self.size
        parts = []
        for start in range(0, len(whole), step):
            parts.append((self._base, whole[start : start + step]))
            self._base += step + PAGE
        return self.keys.map(path, parts)

    def unmap(self, path: int) -> None:
        self.keys.unmap(path)
