"""Files and RAM disks behind a server."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bluebridge.device.layout.net.rnbd import CachePolicy
from bluebridge.guest.protocols.rnbd.backend import FileBackend, RamBackend, export_of, size_of
from bluebridge.guest.protocols.rnbd.engine.actions import Backend

SIZE = 1 << 16


@pytest.fixture(params=["file", "ram"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """64 KiB of zeroes."""
    if request.param == "ram":
        return RamBackend(SIZE)
    path = tmp_path / "disk"
    path.write_bytes(bytes(SIZE + 100))
    return FileBackend(str(path))


def contents(backend: Backend) -> bytes:
    data = bytearray(backend.geometry.sectors * 512)
    backend.read(0, memoryview(data))
    return bytes(data)


def test_what_is_written_is_read(backend: Backend) -> None:
    assert backend.geometry.sectors == SIZE // 512
    backend.write(512, memoryview(b"a" * 1024), fua=False)
    backend.write(SIZE - 512, memoryview(b"z" * 512), fua=True)
    backend.flush()
    expected = bytes(512) + b"a" * 1024 + bytes(SIZE - 2048) + b"z" * 512
    assert contents(backend) == expected


@pytest.mark.parametrize(
    ("offset", "length"), [(0, SIZE), (512, 512), (512, 4096), (4096, 8192), (4096, 4608), (0, 0)]
)
def test_zeroes_end_where_they_should(backend: Backend, offset: int, length: int) -> None:
    expected = bytearray(b"x" * SIZE)
    expected[offset : offset + length] = bytes(length)
    for fua in (False, True):
        backend.write(0, memoryview(b"x" * SIZE), fua=False)
        backend.write_zeroes(offset, length, fua=fua)
        assert contents(backend) == expected
    backend.write(0, memoryview(b"x" * SIZE), fua=False)
    backend.discard(offset, length)
    after = contents(backend)
    outside = set(after[:offset] + after[offset + length :])
    assert outside <= {ord("x")}


def test_a_file_can_lose_what_a_ram_disk_cannot(tmp_path: Path) -> None:
    """A client flushes only what has a cache."""
    path = tmp_path / "disk"
    path.write_bytes(bytes(512))
    assert FileBackend(str(path)).geometry.cache_policy == CachePolicy.FUA | CachePolicy.WRITEBACK
    assert RamBackend(512).geometry.cache_policy == 0


def test_a_file_that_becomes_shorter(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(2048))
    backend = FileBackend(str(path))
    os.truncate(path, 700)
    with pytest.raises(OSError, match="shorter") as caught:
        backend.read(512, memoryview(bytearray(512)))
    assert caught.value.errno == errno.EIO


def test_exports_in_words(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.write_bytes(bytes(1024))
    assert export_of(f"a={path}").backend.geometry.sectors == 2
    export = export_of("dir/ram0=ram:1M")
    assert (export.name, export.backend.geometry.sectors) == ("dir/ram0", 2048)
    assert [size_of(words) for words in ("512", "2k", "1G")] == [512, 2048, 1 << 30]


@pytest.mark.parametrize(
    "words", ["disk", "=x", "a=", "a=ram:", "a=ram:1X", "a=ram:100", "a=ram:0"]
)
def test_words_that_are_no_export(words: str) -> None:
    with pytest.raises(ValueError, match=r"is no|are no"):
        export_of(words)


def test_files_that_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        export_of(f"a={tmp_path}/none")
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="shorter than a sector"):
        export_of(f"a={tmp_path}/empty")
