"""Booting over the network: what DHCP answers, how QEMU starts, who may do it."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from bluebridge.device.server.options import BridgeOptions
from bluebridge.guest import boot_server
from bluebridge.guest.boot_server import HEADER, MAGIC, answer, message_type
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab import network_boot
from bluebridge.host_tools.lab.artefacts import NetworkBootFiles
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.machine import qemu_arguments
from bluebridge.host_tools.machine.qemu_arguments import NetworkBoot

SERVER, CLIENT = IPv4Address("10.9.0.2"), IPv4Address("10.9.0.1")
MAC = bytes.fromhex("0002c9bb0001")


def request(options: bytes, *, op: int = 1, magic: bytes = MAGIC) -> bytes:
    """A client's message; it has no address yet."""
    nobody = bytes(4)
    return (
        HEADER.pack(op, 1, 6, 0, 0xABCD, 4, 0, nobody, nobody, nobody, nobody, MAC, b"", b"", magic)
        + options
    )


@pytest.mark.parametrize(("asked", "answered"), [(1, 2), (3, 5)])
def test_the_one_address_and_the_boot_script(asked: int, answered: int) -> None:
    reply = answer(request(bytes((0, 12, 1, 97, 53, 1, asked, 255))), SERVER, CLIENT)
    assert reply is not None
    fields = HEADER.unpack_from(reply)
    assert (fields[0], fields[4], fields[8], fields[11][:6]) == (2, 0xABCD, CLIENT.packed, MAC)
    assert fields[13].rstrip(b"\0") == b"http://10.9.0.2/boot.ipxe"
    options = reply[HEADER.size :]
    assert message_type(options) == answered
    assert bytes((54, 4)) + SERVER.packed in options
    assert bytes((1, 4, 255, 255, 255, 0)) in options


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        request(b"")[:-1],
        request(b""),
        request(bytes((53,))),
        request(bytes((53, 1))),
        request(bytes((53, 1, 7, 255))),
        request(bytes((12, 200, 53, 1, 1))),
        request(bytes((53, 1, 1, 255)), op=2),
        request(bytes((53, 1, 1, 255)), magic=bytes(4)),
    ],
)
def test_what_asks_for_nothing_gets_nothing(junk: bytes) -> None:
    assert answer(junk, SERVER, CLIENT) is None


def test_a_longer_request_than_any_frame_is_cut() -> None:
    assert answer(request(bytes(boot_server.LONGEST)), SERVER, CLIENT) is None


def test_qemu_starts_firmware_that_sees_an_id_its_driver_knows() -> None:
    boot = NetworkBoot(Path("/ipxe.lkrn"), {0: 0x673C})
    words = " ".join(qemu_arguments.start_arguments(boot))
    assert "-kernel /ipxe.lkrn" in words
    assert "graphics=off" in words
    assert "device.port5.pref64-reserve=64M" in words, "all BARs below 4 GiB"
    assert "-initrd" not in words
    with_script = qemu_arguments.start_arguments(replace(boot, script=Path("/try.ipxe")))
    assert with_script[-2:] == ["-initrd", "/try.ipxe"]
    _, described = qemu_arguments.device_arguments(0, Path("/s"), boot.device_ids.get(0))
    assert json.loads(described)["x-pci-device-id"] == 0x673C
    _, described = qemu_arguments.device_arguments(1, Path("/s"), boot.device_ids.get(1))
    assert "x-pci-device-id" not in json.loads(described)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (LabConfig(), "--driver kernel"),
        (LabConfig(kernel=True, hca=False, bridge=BridgeOptions()), "--driver kernel"),
        (LabConfig(kernel=True, bridge=BridgeOptions()), "without --ntb"),
    ],
)
def test_pairs_that_cannot(config: LabConfig, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        network_boot.check(config)


def test_every_hca_of_a_guest_is_one_that_ipxe_knows() -> None:
    files = NetworkBootFiles(Path("/ipxe"), Path("/vmlinuz"), Path("/root"))
    assert network_boot.start(LabConfig(hcas=2), files).device_ids == {0: 0x673C, 2: 0x673C}
