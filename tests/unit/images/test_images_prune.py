"""Removal of files from the guest's root: patterns, packed tests, unused libraries."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.images import unpack
from bluebridge.images.recipes import guest_contents
from bluebridge.images.report import ImageError
from bluebridge.images.unpack import LIBRARIES

NAMES = st.lists(st.text("abc.-0", min_size=1, max_size=12), max_size=6)
LOADED_AT = 0x4000
"""Address of the made-up file's only segment, so that addresses and offsets differ."""


def shared_object(*names: str) -> bytes:
    """An ELF file that needs the libraries `names`: header, two segments, dynamic section."""
    strings, offsets = b"\0", []
    for name in names:
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    start = unpack.HEADER.size + 2 * unpack.SEGMENT.size
    entries = [(unpack.DT_STRTAB, LOADED_AT + start)]
    entries += [(unpack.DT_NEEDED, offset) for offset in offsets]
    entries += [(unpack.DT_NULL, 0), (unpack.DT_NEEDED, 0xDEAD)]
    dynamic = b"".join(unpack.ENTRY.pack(*entry) for entry in entries)
    at, size = start + len(strings), start + len(strings) + len(dynamic)
    header = unpack.HEADER.pack(
        unpack.MAGIC, 3, 62, 1, 0, unpack.HEADER.size, 0, 0, 64, unpack.SEGMENT.size, 2, 0, 0, 0
    )
    load = unpack.SEGMENT.pack(unpack.PT_LOAD, 5, 0, LOADED_AT, LOADED_AT, size, size, 4096)
    where = LOADED_AT + at
    found = unpack.SEGMENT.pack(
        unpack.PT_DYNAMIC, 4, at, where, where, len(dynamic), len(dynamic), 8
    )
    return header + load + found + strings + dynamic


def test_a_program_of_this_host_needs_the_c_library() -> None:
    assert "libc.so.6" in unpack.needed(Path("/bin/sh"))


@given(NAMES)
def test_needed_libraries_come_back(names: list[str]) -> None:
    assert unpack.needed_by(shared_object(*names)) == names


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01 of 32 bits"])
def test_a_file_that_is_no_elf_needs_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert unpack.needed(tmp_path / "file") == []


def test_patterns_take_folders_files_and_links_but_not_what_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "doc/rdma/tests"
    kept.mkdir(parents=True)
    (kept / "base.py.gz").write_bytes(gzip.compress(b"pass"))
    (tmp_path / "doc/rdma/changelog").touch()
    (tmp_path / "doc/other").mkdir()
    (tmp_path / "man").symlink_to("doc")
    unpack.prune(tmp_path, ["doc", "man", "absent*"], kept=["doc/rdma/tests"])
    unpack.gunzip(kept)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left == {"doc", "doc/rdma", "doc/rdma/tests", "doc/rdma/tests/base.py"}
    assert (kept / "base.py").read_bytes() == b"pass"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A program, a plug-in that is a link, one with a library of its own, and libraries."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    folder = tmp_path / LIBRARIES
    (folder / "plugins").mkdir(parents=True)
    (tmp_path / "usr/bin/tool").write_bytes(shared_object("libone.so.1"))
    (folder / "libone.so.1").symlink_to("libone.so.1.2")
    (folder / "libone.so.1.2").write_bytes(shared_object("libtwo.so"))
    (folder / "libtwo.so").write_bytes(shared_object("libone.so.1"))
    (folder / "libmlx.so.3").write_bytes(shared_object())
    (folder / "plugins/mlx-plugin.so").symlink_to("../libmlx.so.3")
    (folder / "plugins/libown.so").write_bytes(shared_object())
    (folder / "plugins/user.so").write_bytes(shared_object("libown.so"))
    (folder / "libnss_dns.so.2").write_bytes(shared_object())
    (folder / "libuseless.so.9").write_bytes(shared_object("libalso.so"))
    (folder / "libalso.so").write_bytes(shared_object())
    return tmp_path


def test_only_needed_libraries_stay(root: Path) -> None:
    unpack.prune_libraries(root, ["libnss_dns.so.2", "libabsent.so"])
    left = {path.name for path in (root / LIBRARIES).iterdir()} - {"plugins"}
    assert left == {"libone.so.1", "libone.so.1.2", "libtwo.so", "libmlx.so.3", "libnss_dns.so.2"}


def test_a_missing_library_is_named(root: Path) -> None:
    (root / "usr/bin/other").write_bytes(shared_object("libgone.so.7"))
    with pytest.raises(ImageError, match=r"lacks the library libgone\.so\.7"):
        unpack.prune_libraries(root, [])


def test_the_tables_of_contents_have_no_duplicates() -> None:
    for table in (
        guest_contents.REQUEST,
        guest_contents.UNWANTED,
        guest_contents.MODULES,
        guest_contents.FOLDERS,
        guest_contents.REMOVED,
    ):
        assert len(table) == len(set(table))
    assert not set(guest_contents.REQUEST) & set(guest_contents.UNWANTED)
