"""The trees of RNBD, byte for byte."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from bluebridge.device.layout.net.rnbd import AccessMode
from bluebridge.guest.protocols.rnbd.backend import export_of
from bluebridge.guest.protocols.rnbd.engine.actions import ClientDevice, DeviceState
from bluebridge.guest.protocols.rnbd.files import (
    ClientFiles,
    MapOptions,
    Over,
    ServerFiles,
    parse_map_options,
)
from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair
from tests.models.fuse_peer import TreePeer, peer_of
from tests.models.rnbd.loopback import Loopback

DEVICE = "block/nbd3/rnbd"


class Devices:
    """One device; wishes are answered by the test."""

    def __init__(self) -> None:
        self.session = "s"
        self.device = ClientDevice("dir/ram0", AccessMode.RO, DeviceState.MAPPED)
        self.mapped = [("nbd3", self.device)]
        self.calls: list[tuple[object, ...]] = []
        self.over: Over = lambda errno: None
        self.wrong = 0

    def map(self, name: str, access: AccessMode, over: Over) -> None:
        self._called(over, "map", name, access)

    def unmap(self, device: ClientDevice, *, force: bool, over: Over) -> None:
        self._called(over, "unmap", device.name, force)

    def remap(self, device: ClientDevice, over: Over) -> None:
        self._called(over, "remap", device.name)

    def resize(self, device: ClientDevice, sectors: int) -> None:
        """At once."""
        self._called(lambda errno: None, "resize", sectors)

    def _called(self, over: Over, *what: object) -> None:
        if self.wrong:
            raise OSError(self.wrong, "wrong")
        self.calls.append(what)
        self.over = over


Client = tuple[Devices, TreePeer]


@pytest.fixture
def client() -> Iterator[Client]:
    devices = Devices()
    with peer_of(ClientFiles(devices, 2).tree) as peer:
        yield devices, peer


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"{DEVICE}/state", "open\n"),
        (f"{DEVICE}/session", "s\n"),
        (f"{DEVICE}/access_mode", "ro\n"),
        (f"{DEVICE}/mapping_path", "dir/ram0\n"),
        (f"{DEVICE}/nr_poll_queues", "0\n"),
        (f"{DEVICE}/unmap_device", "Usage: echo <normal|force> > unmap_device\n"),
        (f"{DEVICE}/resize", "Usage: echo <new size in sectors> > resize\n"),
        (f"{DEVICE}/remap_device", "Usage: echo <1> > remap_device\n"),
        (
            "ctl/map_device",
            'Usage: echo "[dest_port=server port number] sessname=<name of the rtrs session> '
            "path=<[srcaddr@]dstaddr> [path=<[srcaddr@]dstaddr>] device_path=<full path on remote "
            'side> [access_mode=<ro|rw|migration>] [nr_poll_queues=<number of queues>]" > '
            "map_device\n\naddr ::= [ ip:<ipv4> | ip:<ipv6> | gid:<gid> ]\n",
        ),
    ],
)
def test_the_texts_of_a_client(client: Client, name: str, text: str) -> None:
    assert client[1].read(name) == text


def test_the_states_of_a_device(client: Client) -> None:
    devices, peer = client
    found = []
    for state in DeviceState:
        devices.device.state = state
        found.append(peer.read(f"{DEVICE}/state"))
    assert found == ["init\n", "open\n", "closed\n", "unmapped\n"]


def test_where_devices_are(client: Client) -> None:
    devices, peer = client
    assert peer.names("ctl/devices") == ["dir!ram0@s"]
    assert peer.readlink("ctl/devices/dir!ram0@s") == "../../block/nbd3"
    devices.mapped = []
    assert peer.names("block") == peer.names("ctl/devices") == []


def test_devices_are_unmapped(client: Client) -> None:
    devices, peer = client
    for words in ("", "1", "forced", "normal x"):
        assert peer.write(f"{DEVICE}/unmap_device", words) == errno.EINVAL
    unique = peer.begin_write(f"{DEVICE}/unmap_device", " normal\n")
    assert not peer.answered(unique)
    devices.over(0)
    peer.answer(unique)
    peer.begin_write(f"{DEVICE}/unmap_device", "force\n")
    assert devices.calls == [("unmap", "dir/ram0", False), ("unmap", "dir/ram0", True)]
    devices.wrong = errno.EBUSY
    assert peer.write(f"{DEVICE}/unmap_device", "normal") == errno.EBUSY


def test_devices_are_remapped_and_resized(client: Client) -> None:
    devices, peer = client
    unique = peer.begin_write(f"{DEVICE}/remap_device", "1\n")
    devices.over(errno.EPERM)
    with pytest.raises(PermissionError):
        peer.answer(unique)
    assert peer.write(f"{DEVICE}/remap_device", "2\n") == errno.EINVAL
    assert peer.write(f"{DEVICE}/resize", "0x800\n") == 0
    assert peer.write(f"{DEVICE}/resize", "big") == errno.EINVAL
    assert devices.calls == [("remap", "dir/ram0"), ("resize", 2048)]


def test_devices_are_mapped(client: Client) -> None:
    devices, peer = client
    unique = peer.begin_write("ctl/map_device", "sessname=s device_path=x access_mode=migration\n")
    assert devices.calls == [("map", "x", AccessMode.MIGRATION)]
    assert not peer.answered(unique)
    devices.over(0)
    peer.answer(unique)
    for words, wrong in (
        ("sessname=other device_path=x", errno.ENXIO),
        ("sessname=other device_path=x path=ip:10.9.0.1", errno.EOPNOTSUPP),
        ("sessname=s device_path=x nr_poll_queues=1", errno.EINVAL),
        ("sessname=s", errno.EINVAL),
    ):
        assert peer.write("ctl/map_device", words) == wrong


def test_options_of_map_device() -> None:
    words = (
        b" path=ip:10.9.0.2@ip:10.9.0.1  path=ip:10.9.0.3 sessname=a=b device_path=/dev/ram0 "
        b"dest_port=0x4d2 nr_poll_queues=-1 access_mode=ro\n"
    )
    assert parse_map_options(words, 4) == MapOptions(
        "a=b",
        "/dev/ram0",
        AccessMode.RO,
        [AddressPair("10.9.0.2", "10.9.0.1"), AddressPair("", "10.9.0.3")],
        1234,
        4,
    )
    needed = "sessname=s device_path=d "
    assert parse_map_options(needed.encode(), 1).access == AccessMode.RW
    long = parse_map_options(f"sessname={'s' * 255} device_path=d".encode(), 1)
    assert long.session == "s" * 254


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("dest_port=65536", errno.EINVAL),
        ("dest_port=-1", errno.EINVAL),
        ("dest_port=12x", errno.EINVAL),
        ("dest_port=08", errno.EINVAL),
        ("access_mode=rwx", errno.EINVAL),
        ("access_mode=RO", errno.EINVAL),
        ("access_mode=", errno.EINVAL),
        ("nr_poll_queues=5", errno.EINVAL),
        ("nr_poll_queues=-2", errno.EINVAL),
        ("path=10.9.0.1", errno.EINVAL),
        ("force", errno.EINVAL),
        ("sess=x", errno.EINVAL),
        ("sessname=" + "s" * 256, errno.EINVAL),
        (" ".join(["path=ip:10.9.0.1"] * 7), errno.ENOMEM),
    ],
)
def test_options_that_are_wrong(words: str, wrong: int) -> None:
    with pytest.raises(OSError) as caught:
        parse_map_options(f"sessname=s device_path=d {words}\n".encode(), 4)
    assert caught.value.errno == wrong


def test_a_server(tmp_path: pytest.TempPathFactory) -> None:
    """Exports that are open, by whom and how, and how one is taken away."""
    file = f"{tmp_path}/disk"
    with open(file, "wb") as out:
        out.truncate(4096)
    loopback = Loopback([export_of(f"dir/file={file}"), export_of("ram=ram:4096")])
    with peer_of(ServerFiles(loopback.server).tree) as peer:
        assert peer.names("ctl/devices") == []
        loopback.open()
        loopback.client.map("/dir//file", AccessMode.RO, 0.0)
        loopback.client.map("ram", AccessMode.MIGRATION, 0.0)
        loopback.pump()
        assert sorted(peer.names("ctl/devices")) == ["dir!file", "ram"]
        assert peer.readlink("ctl/devices/dir!file/block_dev") == file
        assert peer.names("ctl/devices/ram") == ["sessions"]
        session = "ctl/devices/dir!file/sessions/loop"
        texts = {
            "access_mode": "ro\n",
            "read_only": "1\n",
            "mapping_path": "/dir//file\n",
            "force_close": "Usage: echo 1 > force_close\n",
        }
        assert {name: peer.read(f"{session}/{name}") for name in peer.names(session)} == texts
        assert peer.read("ctl/devices/ram/sessions/loop/read_only") == "0\n"
        assert peer.read("ctl/devices/ram/sessions/loop/access_mode") == "migration\n"
        assert peer.write(f"{session}/force_close", "0") == errno.EINVAL
        assert peer.write(f"{session}/force_close", "1\n") == 0
        assert peer.names("ctl/devices") == ["ram"]
