"""`bluebridge-vfio` of the guest's root, with folders in place of the guest's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bluebridge.device.layout.pci import ADAPTER_IDS
from bluebridge.images.recipes import guest

SCRIPT = Path(guest.__file__).parents[1] / "guest" / "bluebridge-vfio"
NONE = (
    "bluebridge-vfio: there is no ConnectX-3 or ConnectX-5: name the PCI address of another "
    "function\n"
)


def add_function(root: Path, address: str, vendor: int, device: int) -> Path:
    """A PCI function without a driver."""
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor:#06x}\n")
    (folder / "device").write_text(f"{device:#06x}\n")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A guest with a bridge, and the script."""
    (tmp_path / "run").mkdir()
    add_function(tmp_path, "0000:00:01.0", 0x8086, 0x0D01)
    program = tmp_path / "modprobe"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (
        SCRIPT.read_text().replace("/sys/", f"{tmp_path}/sys/").replace("/run/", f"{tmp_path}/run/")
    )
    (tmp_path / "script").write_text(text)
    return tmp_path


def run(root: Path, *arguments: str) -> tuple[int, str]:
    """Exit status and what was said."""
    path = f"{root}:/usr/bin:/bin"
    done = subprocess.run(
        ["sh", str(root / "script"), *arguments],
        env={"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def test_without_an_adapter_it_says_so_when_asked_for_one(root: Path) -> None:
    assert run(root) == (1, NONE)
    assert run(root, "--any") == (0, "")


@pytest.mark.parametrize("device", [device for _, device in ADAPTER_IDS])
@pytest.mark.parametrize("arguments", [(), ("--any",)])
def test_every_identity_of_the_adapter_is_taken(
    root: Path, device: int, arguments: tuple[str, ...]
) -> None:
    """The guest driver takes them, too: `test_guest_driver.py: test_find_device`."""
    folder = add_function(root, "0000:01:00.0", 0x15B3, device)
    driver = root / "sys/bus/pci/drivers/vfio-pci"
    driver.mkdir(parents=True)
    status, said = run(root, *arguments)  # nobody reads drivers_probe here
    assert (status, said) == (
        1,
        "bluebridge-vfio: vfio-pci does not take 0000:01:00.0: see dmesg\n",
    )
    assert (folder / "driver_override").read_text() == "vfio-pci\n"
    (folder / "driver").symlink_to(driver)
    assert run(root, *arguments) == (0, "")
