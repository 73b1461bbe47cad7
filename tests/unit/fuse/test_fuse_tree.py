"""A tree of files, spoken to in the kernel's protocol."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

import pytest

from bluebridge.guest.fuse import messages as wire
from bluebridge.guest.fuse import tree
from bluebridge.guest.fuse.connection import ROOT, Inodes
from bluebridge.guest.fuse.messages import Opcode
from bluebridge.guest.fuse.tree import Answer, Directory, File, Link, Node, directory
from tests.models.fuse_peer import TreePeer, peer_of


class Things:
    """A directory that changes, a value, and a file whose writers wait."""

    def __init__(self) -> None:
        self.value = "one"
        self.present: dict[str, Node] = {}
        self.waiting: list[Answer] = []
        self.root = directory(
            {
                "value": File(lambda: f"{self.value}\n", self._set),
                "fixed": File(lambda: "x" * 10000),
                "order": File(None, self._wait),
                "link": Link("sub/thing"),
                "sub": Directory(lambda: self.present),
            }
        )

    def _set(self, data: bytes, answer: Answer) -> None:
        if not data.strip():
            raise OSError(errno.EINVAL, "empty")
        self.value = data.decode().strip()
        answer.done()

    def _wait(self, data: bytes, answer: Answer) -> None:
        self.waiting.append(answer)
        answer.on_interrupt(lambda: answer.done(errno.EINTR))


@pytest.fixture
def things() -> Things:
    return Things()


@pytest.fixture
def peer(things: Things) -> Iterator[TreePeer]:
    with peer_of(things.root) as found:
        yield found


def test_files_are_read_and_written(peer: TreePeer, things: Things) -> None:
    assert peer.read("value") == "one\n"
    assert peer.write("value", "two\n") == 0
    assert (things.value, peer.read("value", piece=2)) == ("two", "two\n")
    assert peer.write("value", "\n") == errno.EINVAL
    assert peer.read("fixed") == "x" * 10000


def test_types_and_modes(peer: TreePeer) -> None:
    assert peer.mode("") == stat.S_IFDIR | 0o755
    assert peer.mode("value") == stat.S_IFREG | 0o644
    assert peer.mode("fixed") == stat.S_IFREG | 0o444
    assert peer.mode("order") == stat.S_IFREG | 0o200
    assert peer.mode("link") == stat.S_IFLNK | 0o777
    assert peer.readlink("link") == "sub/thing"


def test_files_that_cannot_be_opened_so(peer: TreePeer) -> None:
    """By root neither, as in sysfs."""
    for path, flags, wrong in (
        ("fixed", os.O_WRONLY, errno.EACCES),
        ("fixed", os.O_RDWR, errno.EACCES),
        ("order", os.O_RDONLY, errno.EACCES),
        ("sub", os.O_RDONLY, errno.EISDIR),
        ("none", os.O_RDONLY, errno.ENOENT),
        ("value/none", os.O_RDONLY, errno.ENOTDIR),
    ):
        with pytest.raises(OSError) as caught:
            peer.open(path, flags)
        assert caught.value.errno == wrong


def test_a_directory_that_changes(peer: TreePeer, things: Things) -> None:
    """Also in pieces, and while a file of it is open."""
    assert peer.names("sub") == []
    things.present = {f"thing{number}": File(lambda: "here\n") for number in range(200)}
    assert peer.names("sub") == list(things.present)
    assert peer.names("sub", size=100) == list(things.present)
    node, handle = peer.open("sub/thing7", os.O_RDONLY)
    things.present = {}
    with pytest.raises(OSError, match="No such device"):
        peer.read_part(node, handle, 0, 100)
    with pytest.raises(FileNotFoundError):
        peer.lookup("sub/thing7")
    assert sorted(peer.names("")) == ["fixed", "link", "order", "sub", "value"]


def test_a_reader_in_pieces_sees_one_text(peer: TreePeer, things: Things) -> None:
    things.value = "a long value"
    node, handle = peer.open("value", os.O_RDONLY)
    assert peer.read_part(node, handle, 0, 6) == b"a long"
    things.value = "another"
    assert peer.read_part(node, handle, 6, 100) == b" value\n"
    assert peer.read_part(node, handle, 0, 100) == b"another\n"


def test_writers_wait_for_their_answer(peer: TreePeer, things: Things) -> None:
    first = peer.begin_write("order", "1\n")
    second = peer.begin_write("order", "1\n")
    assert not peer.answered(first) and not peer.answered(second)
    things.waiting[1].done(errno.ENOTCONN)
    with pytest.raises(OSError, match="not connected"):
        peer.answer(second)
    things.waiting[0].done()
    things.waiting[0].done(errno.EIO)
    assert wire.WRITE_OUT.unpack(peer.answer(first))[0] == 2


def test_a_signal_and_the_end_reach_writers(peer: TreePeer, things: Things) -> None:
    first, second = peer.begin_write("order", "1\n"), peer.begin_write("order", "1\n")
    peer.send(Opcode.INTERRUPT, 0, wire.INTERRUPT_IN.pack(first))
    with pytest.raises(InterruptedError):
        peer.answer(first)
    peer.send(Opcode.INTERRUPT, 0, wire.INTERRUPT_IN.pack(first))
    peer.close()
    with pytest.raises(InterruptedError):
        peer.answer(second)
    things.waiting[1].done()


def test_directories_keep_their_inode_and_files_do_not(peer: TreePeer) -> None:
    """A directory with another inode would no longer be the working directory of who is in it."""
    assert peer.lookup("sub") == peer.lookup("sub")
    assert peer.lookup("value") != peer.lookup("value")


def test_inodes_are_forgotten(peer: TreePeer) -> None:
    nodes = [peer.lookup("value") for _ in range(3)]
    peer.send(Opcode.FORGET, nodes[0], wire.FORGET_IN.pack(1))
    body = wire.BATCH_FORGET_IN.pack(2, 0)
    body += b"".join(wire.FORGET_ONE.pack(node, 1) for node in nodes[1:])
    peer.send(Opcode.BATCH_FORGET, 0, body)
    for node in nodes:
        with pytest.raises(OSError, match="Stale"):
            peer.ask(Opcode.GETATTR, node, bytes(16))


def test_inodes_are_counted() -> None:
    inodes = Inodes()
    first = inodes.looked_up(("a",), directory=True)
    assert inodes.looked_up(("a",), directory=True) == first
    inodes.forget(first, 1)
    assert inodes.path(first) == ("a",)
    inodes.forget(first, 1)
    inodes.forget(first, 1)
    inodes.forget(ROOT, 5)
    assert len(inodes) == 1 and inodes.path(ROOT) == ()
    assert inodes.looked_up(("a",), directory=True) != first


def test_handles_that_do_not_exist(peer: TreePeer) -> None:
    node = peer.lookup("value")
    body = wire.RW_IN.pack(77, 0, 10, 0, 0, 0, 0)
    for opcode in (Opcode.READ, Opcode.WRITE, Opcode.READDIR):
        with pytest.raises(OSError, match="Bad file descriptor"):
            peer.ask(opcode, node, body)
    with pytest.raises(OSError, match="not implemented"):
        peer.ask(1000, node)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"0", 0),
        (b"-1\n", -1),
        (b"+7", 7),
        (b"0010", 10),
        (b"2147483647", 2147483647),
        (b"5\n\0junk", 5),
        (b"2147483648", errno.ERANGE),
        (b"", errno.EINVAL),
        (b"\n", errno.EINVAL),
        (b" 1", errno.EINVAL),
        (b"1 ", errno.EINVAL),
        (b"1\n\n", errno.EINVAL),
        (b"-+1", errno.EINVAL),
        (b"0x10", errno.EINVAL),
    ],
)
def test_numbers_as_the_kernel_reads_them(data: bytes, value: int) -> None:
    if value in (errno.ERANGE, errno.EINVAL):
        with pytest.raises(OSError, match="number") as caught:
            tree.parse_int(data)
        assert caught.value.errno == value
    else:
        assert tree.parse_int(data) == value


def test_unsigned_numbers_in_any_base() -> None:
    found = [tree.parse_unsigned(words) for words in (b"10", b"0x10\n", b"010", b"0", b"+3")]
    assert found == [10, 16, 8, 0, 3]
    for words in (b"-1", b"09", b"0x", b"1 1", b"x"):
        with pytest.raises(OSError, match="not a number"):
            tree.parse_unsigned(words)
    with pytest.raises(OSError, match="range"):
        tree.parse_unsigned(b"18446744073709551616")
