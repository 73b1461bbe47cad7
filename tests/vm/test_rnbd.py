"""RNBD by the guest's Python on both sides: the block device, its file system, and its files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.lab import Lab
from bluebridge.host_tools.rtrs.session import SESSION, Mapped, mapped

CLIENT = f"/run/bluebridge/rnbd-client/{SESSION}"
PATHS = f"/run/bluebridge/rtrs-client/{SESSION}/paths"
SERVER = f"/run/bluebridge/rtrs-server/{SESSION}"
LOG = "/run/rnbd-client.log"
SIGNAL = """
for process in /proc/[0-9]*; do
    tr '\\0' ' ' < $process/cmdline | grep -q '^python3 -m bluebridge.*.rnbd client' &&
        kill ${process#/proc/} && exit 0
done
exit 1
"""
"""Tells the client's program to end."""
FIO = (
    "fio --name=verify --filename={device} --size=4M --rw=randrw --bs=4k --ioengine=libaio "
    "--iodepth=16 --direct=1 --verify=crc32c --output-format=terse"
)


@pytest.fixture(scope="module")
def session(lab: Lab) -> Iterator[Mapped]:
    """A RAM disk of the second guest, mapped in the first; it leaves nothing behind."""
    with lab.pair(rtrs=("python", "python")) as pair:
        with mapped(pair) as made:
            yield made
        device = made.device.removeprefix("/dev/")
        gone = f"! [ -e /sys/block/{device}/pid ] && ! grep bluebridge /proc/mounts"
        for guest in (pair.a, pair.b):
            guest.run(f"until {gone}; do sleep 0.1; done", timeout=60)
            assert guest.run("find /run/bluebridge -type f").text == ""


def _text(guest: Vm, file: str) -> str:
    return str(guest.run(f"cat {file}").text).strip()


def _block(session: Mapped) -> str:
    return f"{CLIENT}/block/{session.device.removeprefix('/dev/')}/rnbd"


@pytest.mark.brief
def test_a_file_system_on_a_mapped_device(session: Mapped) -> None:
    """It is kept until the device is unmounted, whatever the client is told."""
    client = session.pair.a
    client.run(f"modprobe ext4 && mkfs.ext4 -q {session.device}")
    client.run(f"mount -t ext4 {session.device} /mnt")
    client.run("head -c 3000000 /dev/urandom > /mnt/file && md5sum /mnt/file > /tmp/sum")
    refused = client.run(f"echo normal > {_block(session)}/unmap_device", check=False)
    assert refused.status != 0
    client.run(SIGNAL)
    client.run(f"until grep -q 'mounted on /mnt: umount it' {LOG}; do sleep 0.1; done", timeout=60)
    client.run("umount /mnt")
    client.run(f"mount -t ext4 {session.device} /mnt && md5sum -c /tmp/sum && umount /mnt")


def test_random_blocks_are_verified(session: Mapped) -> None:
    """And counted: reads and writes of the path, each with its message of 32 bytes."""
    client = session.pair.a
    client.run(f"echo 1 > {PATHS}/{session.routes[0].name}/stats/reset_all")
    session.pair.b.run(f"echo 1 > {SERVER}/paths/{session.routes[0].name}/stats/rdma")
    client.run(FIO.format(device=session.device), timeout=200)
    (path,) = session.client.statistics()
    reads, read_bytes, writes, written, *_ = path.rdma
    assert reads >= 1024 and read_bytes >= 1024 * (4096 + 32)
    assert writes > 300 and written == writes * (4096 + 32)
    assert [other.rdma[:4] for other in session.server.statistics()] == [path.rdma[:4]]


def test_zeroes_and_discards_reach_the_server(session: Mapped) -> None:
    client = session.pair.a
    client.run(f"tr '\\0' x < /dev/zero | dd of={session.device} bs=1M count=2 oflag=direct")
    client.run(f"blkdiscard -o 4096 -l 1044480 {session.device}")
    client.run("head -c 4096 /dev/zero | tr '\\0' x > /tmp/expected")
    client.run("head -c 1044480 /dev/zero >> /tmp/expected")
    client.run(f"head -c 1048576 {session.device} | cmp - /tmp/expected")


def test_what_can_be_done_with_the_files(session: Mapped) -> None:
    """Unmap, map, disconnect, reconnect; without a path requests fail."""
    client, path = session.pair.a, f"{PATHS}/{session.routes[0].name}"
    read = f"dd if={session.device} of=/dev/null bs=4k count=1 iflag=direct"
    assert _text(client, f"{_block(session)}/state") == "open"
    client.run(f"echo 1 > {path}/disconnect")
    assert _text(client, f"{path}/state") == "disconnected"
    assert _text(client, f"{_block(session)}/state") == "closed"
    assert client.run(read, check=False).status != 0
    client.run(f"echo 1 > {path}/reconnect", timeout=100)
    assert _text(client, f"{path}/stats/reconnects") == "1 0"
    client.run(f"until [ $(cat {_block(session)}/state) = open ]; do sleep 0.1; done", timeout=60)
    client.run(read)
    twice = f"sessname={SESSION} device_path=disk"
    assert client.run(f"echo {twice} > {CLIENT}/ctl/map_device", check=False).status != 0
    assert (
        _text(session.pair.b, "/run/bluebridge/rnbd-server/ctl/devices/disk/sessions/*/read_only")
        == "0"
    )
