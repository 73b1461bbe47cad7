"""The backends that a server exports: files and block devices, and RAM disks."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import stat
import struct

from bluebridge.device.layout.net.rnbd import SECTOR, CachePolicy
from bluebridge.guest.protocols.rnbd.engine.messages import Geometry
from bluebridge.guest.protocols.rnbd.engine.server import Export

_ALL_SECTORS = 0xFFFFFFFF // SECTOR
"""The most sectors that one request without data can name: its length has 32 bits."""
_PAGE = mmap.PAGESIZE
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16
_BLKSSZGET = 0x1268
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_ZEROES = bytes(1 << 20)
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

_SIZE = re.compile(r"(\d+)([KMGT]?)", re.ASCII | re.IGNORECASE)
_SHIFT = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class FileBackend:
    """The sectors of the file `path`, without an incomplete one at its end.

    Opened read-only if it cannot be written. Raises `OSError`, `ValueError` if it has no sector.
    """

    def __init__(self, path: str) -> None:
        self.writable = True
        self.place = os.path.abspath(path)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.writable = False
        sectors = os.lseek(self._fd, 0, os.SEEK_END) // SECTOR
        if not sectors:
            raise ValueError(f"{path} is shorter than a sector of {SECTOR} bytes")
        logical = SECTOR
        if stat.S_ISBLK(os.fstat(self._fd).st_mode):
            answer = fcntl.ioctl(self._fd, _BLKSSZGET, bytes(4))
            logical = int(struct.unpack("=I", answer)[0])
        self.geometry = _geometry(sectors, logical, CachePolicy.WRITEBACK | CachePolicy.FUA)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def read(self, offset: int, into: memoryview) -> None:
        """Fill all of `into`; raises `OSError`, EIO if the file has become shorter."""
        while into:
            count = os.preadv(self._fd, [into], offset)
            if not count:
                raise OSError(errno.EIO, "the file has become shorter")
            into, offset = into[count:], offset + count

    def write(self, offset: int, data: memoryview, *, fua: bool) -> None:
        """Store all of `data`; raises `OSError`."""
        while data:
            count = os.pwritev(self._fd, [data], offset, os.RWF_DSYNC if fua else 0)
            data, offset = data[count:], offset + count

    def flush(self) -> None:
        """Put everything on stable storage; raises `OSError`."""
        os.fdatasync(self._fd)

    def discard(self, offset: int, length: int) -> None:
        """Punch a hole; without holes in the file system nothing happens; raises `OSError`."""
        try:
            self._allocate(_PUNCH_HOLE | _KEEP_SIZE, offset, length)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise

    def write_zeroes(self, offset: int, length: int, *, fua: bool) -> None:
        """Store zeroes, by a hole if that can be; raises `OSError`."""
        for mode in (_ZERO_RANGE | _KEEP_SIZE, _PUNCH_HOLE | _KEEP_SIZE):
            try:
                self._allocate(mode, offset, length)
                break
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
        else:
            self._store_zeroes(offset, length)
        if fua:
            self.flush()

    def _store_zeroes(self, offset: int, length: int) -> None:
        zeroes = memoryview(_ZEROES)
        while length:
            part = min(length, len(zeroes))
            self.write(offset, zeroes[:part], fua=False)
            offset, length = offset + part, length - part

    def _allocate(self, mode: int, offset: int, length: int) -> None:
        if length and _fallocate(self._fd, mode, offset, length):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


class RamBackend:
    """A RAM disk of `size` zero bytes.

    Raises `ValueError` if they are not whole sectors, `OSError` without memory. There is no cache
    that could be lost alone, so flushes do nothing and are not asked for.
    """

    writable = True
    place = ""

    def __init__(self, size: int) -> None:
        if size < SECTOR or size % SECTOR:
            raise ValueError(f"{size} bytes are no sectors of {SECTOR}")
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = memoryview(self._memory)
        self.geometry = _geometry(size // SECTOR, SECTOR, 0)

    def read(self, offset: int, into: memoryview) -> None:
        """Fill all of `into`."""
        into[:] = self._view[offset : offset + len(into)]

    def write(self, offset: int, data: memoryview, *, fua: bool) -> None:
        """Store all of `data`."""
        self._view[offset : offset + len(data)] = data

    def flush(self) -> None:
        """Do nothing, since data are in no second place."""

    def discard(self, offset: int, length: int) -> None:
        """Free whole pages of the range."""
        self.write_zeroes(offset, length, fua=False)

    def write_zeroes(self, offset: int, length: int, *, fua: bool) -> None:
        """Zero a range, of which whole pages are freed and read as zeroes."""
        end = offset + length
        first = min(-(-offset // mmap.PAGESIZE) * mmap.PAGESIZE, end)
        last = max(end // mmap.PAGESIZE * mmap.PAGESIZE, first)
        if last > first:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)
        self._view[offset:first] = bytes(first - offset)
        self._view[last:end] = bytes(end - last)


def _geometry(sectors: int, logical_block_size: int, cache_policy: int) -> Geometry:
    return Geometry(
        sectors=sectors,
        max_hw_sectors=_ALL_SECTORS,
        max_write_zeroes_sectors=_ALL_SECTORS,
        max_discard_sectors=_ALL_SECTORS,
        discard_granularity=_PAGE,
        physical_block_size=max(_PAGE, logical_block_size),
        logical_block_size=logical_block_size,
        max_segments=0xFFFF,
        cache_policy=cache_policy,
    )


def export_of(words: str) -> Export:
    """Open the export that `words` describe; raises `OSError` and `ValueError`."""
    name, found, what = words.partition("=")
    if not name or not found or not what:
        raise ValueError(f"{words!r} is not NAME=FILE or NAME=ram:SIZE")
    if what.startswith("ram:"):
        return Export(name, RamBackend(size_of(what.removeprefix("ram:"))))
    return Export(name, FileBackend(what))


def size_of(words: str) -> int:
    """Parse a size such as 4096, 256M or 1G into bytes; raises `ValueError`."""
    match = _SIZE.fullmatch(words)
    if match is None:
        raise ValueError(f"{words!r} is no size: write 4096, 256M or 1G")
    return int(match[1]) << _SHIFT[match[2].upper()]
