"""A kernel image of the user's, read before it boots: release, architecture, configuration."""

from __future__ import annotations

import gzip
import struct
import tarfile
from pathlib import Path

import pytest

from bluebridge.images import kernel_image, kernel_needs, own_kernel
from bluebridge.images.cache import Cache
from bluebridge.images.kernel_config import text
from bluebridge.images.recipes.kernel import PAYLOAD_LENGTH, PAYLOAD_OFFSET, SETUP_SECTS
from bluebridge.images.report import ImageError
from bluebridge.images.unpack import HEADER, SEGMENT

RELEASE = "6.99.1-mine"
CARDS = ("connectx3", "connectx5")
CONFIG = "CONFIG_PCI=y\nCONFIG_MLX4_CORE=m\n# CONFIG_VFIO is not set\n"


def elf(config: str = "", machine: int = 62, note: int = 18) -> bytes:
    """A kernel whose notes have one of Xen's, which is where QEMU starts when its type is 18."""
    notes = struct.pack("<III", 4, 4, note) + b"Xen\0" + bytes(4)
    start = HEADER.size + SEGMENT.size
    segment = SEGMENT.pack(4, 4, start, 0, 0, len(notes), len(notes), 4)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = HEADER.pack(ident, 2, machine, 1, 0, HEADER.size, 0, 0, 64, 56, 1, 0, 0, 0)
    packed = b"IKCFG_ST" + gzip.compress(config.encode()) + b"IKCFG_ED" if config else b""
    return header + segment + notes + b"Linux version %b (me) \0" % RELEASE.encode() + packed


def bzimage(payload: bytes, flags: int = 1) -> bytes:
    """A bzImage with `payload` compressed by gzip."""
    packed = gzip.compress(payload)
    setup = bytearray(4 * 512)
    setup[SETUP_SECTS] = 3
    setup[0x202:0x206] = b"HdrS"
    setup[0x236] = flags
    struct.pack_into("<H", setup, 0x20E, 0x400)
    setup[0x600 : 0x600 + 40] = f"{RELEASE} (me@here) #1".encode().ljust(40, b"\0")
    struct.pack_into("<I", setup, PAYLOAD_OFFSET, 64)
    struct.pack_into("<I", setup, PAYLOAD_LENGTH, len(packed))
    return bytes(setup) + bytes(64) + packed


def kernel(folder: Path, content: bytes, name: str = "bzImage") -> Path:
    """The path of a file with that content."""
    (folder / name).write_bytes(content)
    return folder / name


def module(release: str, depends: str = "") -> bytes:
    return f"\x7fELF\0vermagic={release} SMP \0depends={depends}\0".encode()


def modules(folder: Path, release: str, vermagic: str = "") -> Path:
    """Return what `make modules_install INSTALL_MOD_PATH=folder` leaves there."""
    inside = folder / "lib/modules" / release
    (inside / "kernel").mkdir(parents=True)
    (inside / "modules.order").touch()
    (inside / "kernel" / "mlx4_core.ko").write_bytes(module(vermagic or release))
    return folder


@pytest.mark.parametrize("pack", [bzimage, lambda content: content], ids=["bzImage", "vmlinux"])
def test_an_image_tells_its_release_and_its_configuration(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    found = kernel_image.read(kernel(tmp_path, pack(elf(CONFIG))))
    assert (found.release, found.config) == (RELEASE, CONFIG)
    assert found.bootable == elf(CONFIG)


def test_a_kernel_without_the_entry_for_qemu_is_started_as_its_image(tmp_path: Path) -> None:
    image = bzimage(elf(note=1))
    assert kernel_image.read(kernel(tmp_path, image)).bootable == image
    with pytest.raises(ImageError, match="ELF kernel without CONFIG_PVH"):
        kernel_image.read(kernel(tmp_path, elf(note=1)))


def test_a_kernel_with_kasan_is_started_as_its_image(tmp_path: Path) -> None:
    image = bzimage(elf(f"{CONFIG}CONFIG_KASAN=y\n"))
    found = kernel_image.read(kernel(tmp_path, image))
    assert found.bootable == image and found.checked
    assert not kernel_image.read(kernel(tmp_path, bzimage(elf(CONFIG)))).checked


@pytest.mark.parametrize("place", [f"config-{RELEASE}", "config"])
def test_a_configuration_beside_the_image_counts(tmp_path: Path, place: str) -> None:
    (tmp_path / place).write_text(CONFIG)
    assert kernel_image.read(kernel(tmp_path, bzimage(elf()))).config == CONFIG


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (bytes(56) + b"ARM\x64" + bytes(900), "a kernel for arm64"),
        (elf(machine=183), "a kernel for arm64"),
        (bzimage(elf(), flags=0), "a kernel for i386"),
        (b"hello", "no kernel image"),
        (b"", "no kernel image"),
        (bytes(4096), "no kernel image"),
    ],
)
def test_what_no_guest_can_start_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    with pytest.raises(ImageError, match=told):
        kernel_image.read(kernel(tmp_path, content))


def test_missing_symbols_are_those_of_the_driver(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text(debug=False).replace("CONFIG_VFIO_NOIOMMU=y\n", ""))
    own = own_kernel.find(kernel(tmp_path, bzimage(elf())), None)
    assert [need.symbol for need in own.lacking("guest", CARDS)] == ["VFIO_NOIOMMU"]
    # The configuration has mlx4 as modules, and this folder has none of them.
    assert [need.symbol for need in own.lacking("kernel", CARDS)][:2] == ["MLX4_CORE", "MLX4_EN"]
    assert own.lacking("none", CARDS) == []


def test_missing_symbols_are_those_of_the_cards(tmp_path: Path) -> None:
    config = text(debug=False).replace("CONFIG_MLX5_CORE_EN=y\n", "")
    (tmp_path / "config").write_text(config)
    own = own_kernel.find(kernel(tmp_path, bzimage(elf())), modules(tmp_path, RELEASE))
    lacking = {
        name: [need.symbol for need in own.lacking("kernel", [name])]
        for name in ("connectx3", "connectx5")
    }
    assert lacking == {
        "connectx3": ["MLX4_EN", "MLX4_INFINIBAND", "INFINIBAND_IPOIB"],
        "connectx5": ["MLX5_CORE_EN", "MLX5_CORE", "MLX5_INFINIBAND", "INFINIBAND_IPOIB"],
    }
    assert [need.symbol for need in own.lacking("kernel", [])] == ["INFINIBAND_IPOIB"]


def test_what_guests_with_a_connectx5_get_of_a_kernel(tmp_path: Path) -> None:
    folder = modules(tmp_path, RELEASE)
    own = own_kernel.find(kernel(tmp_path, bzimage(elf(CONFIG))), folder)
    cache = Cache(tmp_path / "cache")
    without = own.connectx5(cache)
    inside = folder / "lib/modules" / RELEASE / "kernel"
    (inside / "mlx5_core.ko").write_bytes(module(RELEASE, "mlxfw,mlx4_core"))
    (inside / "mlxfw.ko").write_bytes(module(RELEASE))
    names = []
    for each in (without, own.connectx5(cache)):
        with tarfile.open(each / "connectx5.tar") as archive:
            names.append({Path(name).name for name in archive.getnames()})
    # What guests of any card have, mlx4_core here, is not in it once more.
    assert names == [{"bluebridge-mlx5"}, {"bluebridge-mlx5", "mlx5_core.ko", "mlxfw.ko"}]


def test_the_configuration_for_guests_meets_every_need() -> None:
    for debug in (False, True):
        symbols = kernel_needs.parse(text(debug))
        assert not kernel_needs.missing(symbols, "guest", CARDS)
        assert not kernel_needs.missing(symbols, "kernel", CARDS)
        assert not kernel_needs.must_be_built_in(symbols)
    assert "CONFIG_KASAN=y" in text(debug=True) and "CONFIG_KASAN=y" not in text(debug=False)


def test_the_first_process_can_load_no_module(tmp_path: Path) -> None:
    config = text(debug=False).replace("CONFIG_DEVTMPFS=y", "CONFIG_DEVTMPFS=m")
    (tmp_path / "config").write_text(config)
    own = own_kernel.find(kernel(tmp_path, bzimage(elf())), None)
    assert [need.symbol for need in own.lacking("none", CARDS)] == ["DEVTMPFS"]


def test_modules_of_another_release_are_refused(tmp_path: Path) -> None:
    image = kernel(tmp_path, bzimage(elf(CONFIG)))
    told = rf"the kernel is {RELEASE}, the modules in \S+ are of 6.1.0-1-amd64"
    with pytest.raises(ImageError, match=told):
        own_kernel.find(image, modules(tmp_path / "older", "6.1.0-1-amd64"))
    with pytest.raises(ImageError, match=r"were built for 6\.1\.0-1-amd64"):
        own_kernel.find(image, modules(tmp_path / "renamed", RELEASE, "6.1.0-1-amd64"))
    with pytest.raises(ImageError, match="are none"):
        own_kernel.find(image, tmp_path / "older" / "lib" / "modules" / "6.1.0-1-amd64" / "kernel")


@pytest.mark.parametrize("inside", ["", "lib/modules", f"lib/modules/{RELEASE}"])
def test_modules_are_found_however_their_folder_is_named(tmp_path: Path, inside: str) -> None:
    image = kernel(tmp_path, bzimage(elf(CONFIG)))
    folder = modules(tmp_path / "installed", RELEASE)
    found = own_kernel.find(image, folder / inside)
    assert found.modules == folder / "lib/modules" / RELEASE
