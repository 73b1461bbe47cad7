"""A guest whose kernel talks to a host: RNBD, the block device served by a program of this machine.

krping and rping: `test_mixed_drivers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.lab import Lab
from bluebridge.host_tools.rtrs.session import SESSION
from bluebridge.host_tools.rtrs.sides import KernelClient, routes
from tests.vm.conftest import BOOT_SECONDS

SERVER = "python3 -m bluebridge.guest.protocols.rnbd server --export disk=ram:64M --interface"
FIO = (
    "fio --name=verify --filename={device} --size=4M --rw=randrw --bs=4k --ioengine=libaio "
    "--iodepth=16 --direct=1 --verify=crc32c --output-format=terse"
)


@pytest.fixture
def rnbd(lab: Lab) -> Iterator[Pair]:
    """Guest a with the kernel's RNBD, host b with a server that exports a RAM disk."""
    with lab.pair(hosts="b", rtrs=("kernel", "python")) as pair:
        host = pair.hosts["b"]
        host.begin(f"{SERVER} {pair.config.address('b')}")
        assert host.finish(BOOT_SECONDS, progress="rnbd: serving")[0] == -1
        yield pair


@pytest.mark.brief
def test_the_kernel_maps_a_disk_of_a_host(rnbd: Pair) -> None:
    """fio verifies what it wrote; another look at the disk is the same; then both part in peace."""
    client, host = KernelClient(rnbd.a, SESSION), rnbd.hosts["b"]
    device = client.map("disk", routes(rnbd.config))
    rnbd.a.run(FIO.format(device=device), timeout=BOOT_SECONDS)
    (path,) = client.statistics()
    assert path.connected and path.rdma[0] >= 1024
    look = f"dd if={device} bs=1M count=4 iflag=direct 2>/dev/null | md5sum"
    before = rnbd.a.run(look).text
    client.unmap()
    assert client.map("disk", routes(rnbd.config)) == device
    assert rnbd.a.run(look).text == before
    client.unmap()
    host.interrupt()
    status, said = host.finish(60)
    assert status == 0, said
