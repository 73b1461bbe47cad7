"""The ELF kernel in an image, and the dependencies of modules."""

from __future__ import annotations

import lzma
import struct
from pathlib import Path

import pytest

from bluebridge.images.recipes.kernel import (
    PAYLOAD_LENGTH,
    PAYLOAD_OFFSET,
    SETUP_SECTS,
    ModuleTree,
    depends,
    elf_of,
    module_name,
)
from bluebridge.images.report import ImageError


def image(payload: bytes) -> bytes:
    """A bzImage of three set-up sectors whose protected-mode code holds `payload` at 64."""
    setup = bytearray(4 * 512)
    setup[SETUP_SECTS] = 3
    struct.pack_into("<I", setup, PAYLOAD_OFFSET, 64)
    struct.pack_into("<I", setup, PAYLOAD_LENGTH, len(payload))
    return bytes(setup) + bytes(64) + payload + b"tail"


def module(*needs: str) -> bytes:
    return b"\x7fELF\0license=GPL\0depends=" + ",".join(needs).encode() + b"\0name=x\0"


def test_kernel_is_cut_out_of_its_image() -> None:
    elf = b"\x7fELF" + bytes(100)
    assert elf_of(image(lzma.compress(elf))) == elf


@pytest.mark.parametrize("payload", [b"\x00unknown", lzma.compress(b"no kernel")])
def test_unknown_images_are_refused(payload: bytes) -> None:
    with pytest.raises(ImageError):
        elf_of(image(payload))


def test_a_closure_has_all_dependencies(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "top-most.ko.xz").write_bytes(lzma.compress(module("middle")))
    (tmp_path / "middle.ko").write_bytes(module("low"))
    (tmp_path / "low.ko").write_bytes(module())
    (tmp_path / "other.ko").write_bytes(module())
    found = ModuleTree(tmp_path).closure(["top-most"])
    assert {str(path) for path in found} == {"net/top-most.ko", "middle.ko", "low.ko"}
    assert found[Path("net/top-most.ko")] == module("middle")


def test_missing_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no module absent"):
        ModuleTree(tmp_path).closure(["absent"])


def test_names_use_underscores() -> None:
    assert module_name(Path("a/vfio-pci.ko.xz")) == "vfio_pci"
    assert depends(module("ib-core", "low")) == ["ib_core", "low"]
