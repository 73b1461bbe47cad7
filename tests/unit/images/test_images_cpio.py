"""The cpio writer, read back by the cpio program's rules, and the initrd with its overlay."""

from __future__ import annotations

import io
import stat
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bluebridge.images.overlay import TRAILER, CpioWriter, archive_of, sources

ROOT = Path(__file__).parents[3]
HEADER = 110
NAMES = st.text("abcdefgh._-/", min_size=1, max_size=40)
Entry = tuple[int, bytes]


def read(archive: bytes) -> dict[str, Entry]:
    """Entries of a newc archive: mode and contents by name; checks magic, padding and trailer."""
    entries: dict[str, Entry] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        words = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, length = words[1], words[6], words[11]
        name = archive[at + HEADER : at + HEADER + length]
        assert name.endswith(b"\0")
        start = at + HEADER + length
        start += -start % 4
        content = archive[start : start + size]
        at = start + size + -size % 4
        if name[:-1].decode() == TRAILER:
            assert at == len(archive)
            return entries
        entries[name[:-1].decode()] = (mode, content)


@given(st.dictionaries(NAMES, st.binary(max_size=50)))
def test_files_come_back(files: dict[str, bytes]) -> None:
    stream = io.BytesIO()
    writer = CpioWriter(stream)
    for name, content in files.items():
        writer.file(name, content, 0o640)
    writer.close()
    expected = {name: (stat.S_IFREG | 0o640, content) for name, content in files.items()}
    assert read(stream.getvalue()) == expected


def test_tree_keeps_kinds_and_modes(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir(mode=0o755)
    (tmp_path / "bin" / "tool").write_bytes(b"#!")
    (tmp_path / "bin" / "tool").chmod(0o755)
    (tmp_path / "link").symlink_to("bin/tool")
    assert read(archive_of(tmp_path)) == {
        "bin": (stat.S_IFDIR | 0o755, b""),
        "bin/tool": (stat.S_IFREG | 0o755, b"#!"),
        "link": (stat.S_IFLNK | 0o777, b"bin/tool"),
    }


def test_device_nodes_carry_their_numbers() -> None:
    stream = io.BytesIO()
    CpioWriter(stream).character_device("dev/console", 5, 1)
    header = stream.getvalue()
    assert [int(header[6 + 8 * i : 14 + 8 * i], 16) for i in (1, 9, 10)] == [0o20600, 5, 1]


def test_guest_gets_the_tables_of_the_device_and_none_of_its_code() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in sources(ROOT)}
    wanted = {"guest/drivers/bus/interface.py", "device/__init__.py", "device/layout/fields.py"}
    assert {f"bluebridge/{name}" for name in wanted} <= names
    others = ("device/mlx4", "device/rdma", "device/ethernet", "host_tools")
    assert not any(
        name.startswith(tuple(f"bluebridge/{room}" for room in others)) for name in names
    )
