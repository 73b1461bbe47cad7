"""The artefact cache: keys, one builder at a time, nothing half-built under a final name."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.images import __main__ as images_command
from bluebridge.images import artefacts
from bluebridge.images.cache import Cache, Snapshot, default_root, file_digest, key_of
from bluebridge.images.report import ImageError
from bluebridge.images.unpack import tree_size

KEY = "0123456789abcdef"
JSON = st.recursive(
    st.integers() | st.text() | st.booleans(), lambda inner: st.lists(inner), max_leaves=8
)
SLOW_BUILDER = """
import sys, time
from pathlib import Path
from bluebridge.images.cache import Cache
def build(folder):
    (folder / "made").write_text("by the slow one")
    print("building", flush=True)
    time.sleep(float(sys.argv[2]))
Cache(Path(sys.argv[1])).ensure("thing", "0123456789abcdef", build)
"""


def slow_builder(root: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that builds `thing`."""
    command = [sys.executable, "-c", SLOW_BUILDER, str(root), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "building\n"
    return process


def make(folder: Path) -> None:
    (folder / "made").write_text("here")


def fail(folder: Path) -> None:
    (folder / "half").write_text("half")
    raise ImageError("no luck", "try again")


@given(st.lists(JSON))
def test_equal_inputs_give_equal_keys(inputs: list[object]) -> None:
    assert key_of(*inputs) == key_of(*inputs)
    assert len(key_of(*inputs)) == 16


@given(st.lists(JSON), JSON)
def test_one_more_input_gives_another_key(inputs: list[object], extra: object) -> None:
    assert key_of(*inputs) != key_of(*inputs, extra)


def test_digest_depends_on_where_a_file_ends(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"ab")
    second.write_bytes(b"c")
    one = file_digest(first, second)
    first.write_bytes(b"a")
    second.write_bytes(b"bc")
    assert file_digest(first, second) != one


def test_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/a")
    monkeypatch.delenv("BLUEBRIDGE_CACHE", raising=False)
    assert default_root() == Path("/a/bluebridge")
    monkeypatch.setenv("BLUEBRIDGE_CACHE", "/b")
    assert default_root() == Path("/b")


def test_builds_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    folder = cache.ensure("thing", KEY, make)
    assert (folder / "made").read_text() == "here"
    assert cache.ensure("thing", KEY, fail) == folder


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with pytest.raises(ImageError, match="no luck"):
        cache.ensure("thing", KEY, fail)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    assert cache.ensure("thing", KEY, make).is_dir()


def test_a_second_builder_waits_and_uses_the_first_result(tmp_path: Path) -> None:
    other = slow_builder(tmp_path, 0.5)
    folder = Cache(tmp_path).ensure("thing", KEY, fail)
    assert (folder / "made").read_text() == "by the slow one"
    assert other.wait(10) == 0


def test_a_killed_builder_neither_blocks_nor_leaves_files(tmp_path: Path) -> None:
    other = slow_builder(tmp_path, 60)
    other.send_signal(signal.SIGKILL)
    other.wait(10)
    started = time.monotonic()
    folder = Cache(tmp_path).ensure("thing", KEY, make)
    assert time.monotonic() - started < 5
    assert (folder / "made").read_text() == "here"
    there = {".thing.lock", ".uses", folder.name}
    assert {path.name for path in tmp_path.iterdir()} == there


def test_full_disk_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ImageError, match="is full; to mend it: free some space"):
        Cache(tmp_path).ensure("thing", KEY, fill)


def test_nothing_is_begun_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On such a disk apt waits, for ever and without a word."""
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4 << 20))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a program was started"))
    monkeypatch.setattr(artefacts, "host_qemu", lambda: None)
    for words in (["build"], ["path", "libvfio-user"]):
        assert images_command.main(words) == 1
        told = capsys.readouterr().err.splitlines()
        assert re.fullmatch(
            rf"images: the disk of {tmp_path} is full \(4 MiB are left of the \d+ it takes\); "
            "to mend it: free some space, or set BLUEBRIDGE_CACHE to a folder on another disk",
            told[-1],
        )
        assert len(told) == 1


def test_unwritable_cache_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ImageError, match=r"cannot write .*; to mend it: set BLUEBRIDGE_CACHE"):
        Cache(tmp_path / "file" / "below").ensure("thing", KEY, make)


def test_keeps_the_one_before_and_drops_what_is_older(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    folders = [cache.ensure("thing", digit * 16, make) for digit in "123"]
    other = cache.ensure("thing-else", KEY, make)
    assert [folder.exists() for folder in folders] == [False, True, True]
    assert other.exists()


def test_checkouts_that_share_it_keep_the_last_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five of them made each other's compiled device server anew; one that is gone keeps none."""
    cache = Cache(tmp_path / "cache")
    folders = []
    for digit in "12345":
        (tmp_path / digit).mkdir()
        monkeypatch.setattr("bluebridge.images.cache.HOME", tmp_path / digit)
        folders.append(cache.ensure("thing", digit * 16, make))
    assert all(folder.exists() for folder in folders)
    (tmp_path / "2").rmdir()
    monkeypatch.setattr("bluebridge.images.cache.HOME", tmp_path / "1")
    cache.ensure("thing", "3" * 16, make)
    folders += [cache.ensure("thing", digit * 16, make) for digit in "67"]
    # 1 and 2 are used by nobody any more, 6 is the one before; 3, 4 and 5 are those of others.
    there = [folder.exists() for folder in folders]
    assert there == [False, False, True, True, True, True, True]


def test_a_checkout_that_may_not_be_looked_at_keeps_what_it_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home of another user. Here its name is too long, which is refused to root as well."""
    cache = Cache(tmp_path)
    for digit, home in ("1", "a" * 300), ("2", "b"), ("3", "b"), ("4", "b"):
        monkeypatch.setattr("bluebridge.images.cache.HOME", tmp_path / home)
        folder = cache.ensure("thing", digit * 16, make)
        assert folder.is_dir()
    assert cache.folder("thing", "1" * 16).is_dir()


def test_a_snapshot_that_cannot_be_removed(tmp_path: Path) -> None:
    snapshot = Snapshot("test", ("x",), Cache(tmp_path))
    snapshot.ensure(lambda state: state.touch())
    lock = tmp_path / ".snapshot-test.lock"
    lock.unlink()
    lock.mkdir()  # it cannot be locked, as in a cache without write permission
    assert not snapshot.discard()
    lock.rmdir()
    assert snapshot.discard()
    assert snapshot.discard(), "it is gone, whoever did it"


def test_a_hole_takes_no_space(tmp_path: Path) -> None:
    with (tmp_path / "snapshot").open("wb") as file:
        file.truncate(1 << 30)
        file.write(bytes(4096))
    assert 0 < tree_size(tmp_path) < 1 << 20
    assert tree_size(tmp_path / "snapshot") == tree_size(tmp_path)
    # Another process may remove it between a look at its folder and one at the file.
    assert tree_size(tmp_path / "gone") == 0


def test_a_packed_snapshot_is_unpacked_and_not_made(tmp_path: Path) -> None:
    """A container image has it so; a discarded one does not come again."""
    first, second = Cache(tmp_path / "first"), Cache(tmp_path / "second")
    second.root.mkdir()
    made = Snapshot("2c", ("x",), first)
    made.ensure(_saved)
    made.pack(second.root)
    packed = Snapshot("2c", ("x",), second)
    assert packed.ensure(lambda state: pytest.fail("made anew")).read_text() == "saved"
    assert packed.discard()
    assert not packed.ensure(_nothing_is_there).exists()


def _saved(state: Path) -> None:
    state.write_text("saved")


def _nothing_is_there(state: Path) -> None:
    assert list(state.parent.iterdir()) == []
