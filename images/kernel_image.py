"""A kernel of the user's: what an image says of itself, before anything boots.

A bzImage has its release in its header (Linux Documentation/arch/x86/boot.rst) and an ELF kernel
compressed in its payload; a kernel with CONFIG_IKCONFIG has its configuration there
(kernel/configs.c).
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from bluebridge.images.recipes.kernel import PAYLOAD_LENGTH, PAYLOAD_OFFSET, SETUP_SECTS
from bluebridge.images.report import ImageError
from bluebridge.images.unpack import HEADER, MAGIC, SEGMENT, decompress

BOOT_MAGIC, VERSION_POINTER, LOAD_FLAGS = 0x202, 0x20E, 0x236
"""Offsets in a bzImage, as those of `recipes.kernel`."""
ENTRY_OF_64_BITS = 1
"""The bit of LOAD_FLAGS that a kernel for x86-64 sets."""
ARM_MAGIC, ARM_OFFSET = b"ARM\x64", 56
"""Linux Documentation/arch/arm64/booting.rst."""
RISCV_MAGIC = b"RSC\x05"
"""Linux Documentation/arch/riscv/boot-image-header.rst, at the same offset."""
MACHINES = {3: "i386", 8: "MIPS", 21: "ppc64", 22: "s390", 40: "arm", 183: "arm64", 243: "riscv"}
X86_64 = 62
"""e_machine of ELF files, as MACHINES."""
PT_NOTE = 4
PVH_ENTRY = 18
"""The type of the note that names a kernel's PVH entry, of owner "Xen"."""
CONFIG = re.compile(rb"IKCFG_ST(.*?)IKCFG_ED", re.DOTALL)
BANNER = re.compile(rb"Linux version (\S+) ")
KASAN = "CONFIG_KASAN=y\n"
MEND = "name an x86-64 bzImage, as arch/x86/boot/bzImage of a built tree"


@dataclass(frozen=True)
class KernelImage:
    """A kernel that a guest can be started with."""

    path: Path
    release: str
    """What `uname -r` prints under it."""
    elf: bytes | None
    """The ELF kernel, if QEMU can start it; else the image itself has to be started."""
    config: str | None
    """Its configuration, from the image or from a file beside it; None where neither has it."""

    @property
    def checked(self) -> bool:
        """Whether it checks every access to memory or every lock, and is slow by that."""
        symbols = (KASAN, "CONFIG_PROVE_LOCKING=y\n")
        return any(symbol in (self.config or "") for symbol in symbols)

    @property
    def bootable(self) -> bytes:
        """The bytes that QEMU starts."""
        return self.path.read_bytes() if self.elf is None else self.elf


def read(path: Path) -> KernelImage:
    """Return what the kernel at `path` is. Raises `ImageError` unless it is one for x86-64."""
    try:
        image = path.read_bytes()
    except OSError as error:
        raise ImageError(f"--kernel {path}: {error.strerror}", MEND) from error
    other = _other_machine(image)
    if other:
        raise ImageError(f"{path} is a kernel for {other}, guests are x86-64", MEND)
    elf: bytes | None = None
    if image.startswith(MAGIC):
        elf, release = image, _search(BANNER, image)
        if not _has_pvh_entry(image):
            raise ImageError(f"{path} is an ELF kernel without CONFIG_PVH", MEND)
    elif image[BOOT_MAGIC : BOOT_MAGIC + 4] == b"HdrS":
        elf, release = _payload(image), _version(image)
    else:
        raise ImageError(f"{path} is no kernel image", MEND)
    if not release:
        raise ImageError(f"{path} does not say which release of Linux it is", MEND)
    config = _embedded(elf or b"") or _beside(path, release)
    # At its PVH entry a kernel with KASAN resets the machine before it says a word (Linux 6.12).
    starts = image == elf or (_has_pvh_entry(elf or b"") and KASAN not in (config or ""))
    return KernelImage(path, release, elf if starts else None, config)


def _other_machine(image: bytes) -> str:
    """Return the architecture of a kernel that is not for x86-64; empty for one that is."""
    if image.startswith(b"\x7fELF") and len(image) > HEADER.size:
        machine = int.from_bytes(image[18:20], "big" if image[5] == 2 else "little")
        return "" if machine == X86_64 else MACHINES.get(machine, f"machine {machine}")
    magic = image[ARM_OFFSET : ARM_OFFSET + 4]
    if magic in (ARM_MAGIC, RISCV_MAGIC):
        return "arm64" if magic == ARM_MAGIC else "riscv"
    is_bzimage = image[BOOT_MAGIC : BOOT_MAGIC + 4] == b"HdrS" and len(image) > LOAD_FLAGS + 2
    if is_bzimage and not image[LOAD_FLAGS] & ENTRY_OF_64_BITS:
        return "i386"
    return ""


def _version(image: bytes) -> str:
    """Return the first word of the text that the header points to."""
    start = int.from_bytes(image[VERSION_POINTER : VERSION_POINTER + 2], "little") + 0x200
    text = image[start : start + 256].partition(b"\0")[0].decode(errors="replace")
    return (text.split() or [""])[0]


def _payload(image: bytes) -> bytes | None:
    """Return the ELF kernel inside a bzImage; None for a compression that is not known here."""
    (offset,) = struct.unpack_from("<I", image, PAYLOAD_OFFSET)
    (length,) = struct.unpack_from("<I", image, PAYLOAD_LENGTH)
    start = (image[SETUP_SECTS] + 1) * 512 + offset
    packed = image[start : start + length]
    try:
        if packed.startswith(b"\x1f\x8b"):
            elf = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(packed)
        elif packed.startswith(b"BZh"):
            elf = bz2.BZ2Decompressor().decompress(packed)
        elif packed.startswith(b"\x5d\0\0"):
            elf = lzma.LZMADecompressor(lzma.FORMAT_ALONE).decompress(packed)
        else:
            elf = decompress(packed)
    except (ImageError, OSError, zlib.error, lzma.LZMAError):
        return None
    return elf if elf.startswith(MAGIC) else None


def _has_pvh_entry(elf: bytes) -> bool:
    """Whether QEMU can start an ELF kernel directly."""
    try:
        header = HEADER.unpack_from(elf)
        start, size, count = header[5], header[9], header[10]
        for number in range(count):
            kind, _, offset, _, _, length, _, _ = SEGMENT.unpack_from(elf, start + size * number)
            if kind == PT_NOTE and PVH_ENTRY in _xen_notes(elf[offset : offset + length]):
                return True
    except struct.error:
        pass
    return False


def _xen_notes(notes: bytes) -> set[int]:
    """Return the types of the notes whose owner is Xen."""
    found, at = set(), 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        name = notes[at + 12 : at + 12 + name_size]
        if name.rstrip(b"\0") == b"Xen":
            found.add(kind)
        at += 12 + (name_size + 3) // 4 * 4 + (size + 3) // 4 * 4
    return found


def _embedded(elf: bytes) -> str | None:
    match = CONFIG.search(elf)
    if match is None:
        return None
    try:
        return gzip.decompress(match[1]).decode(errors="replace")
    except (OSError, EOFError, zlib.error):
        return None


def _beside(path: Path, release: str) -> str | None:
    """Return the configuration from where distributions, and the kernel's own build, keep it."""
    names = [path.with_name(f"config-{release}"), path.with_name("config")]
    if path.name == "bzImage" and len(path.parents) > 3:
        names.append(path.resolve().parents[3] / ".config")
    if path.name == "vmlinux":
        names.append(path.with_name(".config"))
    return next((name.read_text(errors="replace") for name in names if name.is_file()), None)


def _search(pattern: re.Pattern[bytes], content: bytes) -> str:
    match = pattern.search(content)
    return match[1].decode(errors="replace") if match else ""
