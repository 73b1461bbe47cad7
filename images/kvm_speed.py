"""`python -m bluebridge.images.kvm_speed`: whether a virtual machine of `/dev/kvm` runs at speed.

A host without virtualization in hardware may have a `/dev/kvm` that interprets a guest's code in
its kernel, a hundred times slower than QEMU does. There a guest takes minutes to boot, while a loop
tells within half a second. Uses the ioctls of the kernel's Documentation/virt/kvm/api.rst.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path

DEVICE = Path("/dev/kvm")
TURNS = 50_000_000
"""The loop's length: a tenth of a second or less on a processor, over a minute interpreted."""
LIMIT_SECONDS = 0.5
"""Processor time that the loop may take, so that a busy host does not matter."""
_STOPPED_SECONDS = 30.0

_CREATE_VM, _VCPU_MAPPING, _CREATE_VCPU, _RUN = 0xAE01, 0xAE04, 0xAE41, 0xAE80
_SET_MEMORY, _SET_REGISTERS = 0x4020_AE46, 0x4090_AE82
_GET_SPECIAL, _SET_SPECIAL = 0x8138_AE83, 0x4138_AE84
_EXIT_REASON, _EXIT_IO = 8, 2
_SPECIAL_BYTES, _SEGMENT_BYTES, _CONTROL = 312, 24, 224
_CODE, _MEMORY_BYTES = 0x4000, 0x10000


def runs_at_speed(turns: int = TURNS) -> bool:
    """Whether a guest's loop of so many turns ends within `LIMIT_SECONDS` of processor time."""
    words = [sys.executable, "-m", __spec__.name, str(turns)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_STOPPED_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def run(turns: int) -> bool:
    """Run the loop in a virtual machine, in 64-bit code; True if its last instruction came.

    Raises OSError where KVM makes no machine.
    """
    kvm = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    machine = ioctl(kvm, _CREATE_VM, 0)
    memory = _memory(turns)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ioctl(machine, _SET_MEMORY, struct.pack("<IIQQQ", 0, 0, 0, _MEMORY_BYTES, address))
    processor = ioctl(machine, _CREATE_VCPU, 0)
    told = mmap.mmap(processor, ioctl(kvm, _VCPU_MAPPING, 0))
    special = bytearray(_SPECIAL_BYTES)
    ioctl(processor, _GET_SPECIAL, special)
    _enter_long_mode(special)
    ioctl(processor, _SET_SPECIAL, bytes(special))
    flags = 2  # the bit that is always set
    ioctl(processor, _SET_REGISTERS, struct.pack("<18Q", *[0] * 16, _CODE, flags))
    ioctl(processor, _RUN, 0)
    (reason,) = struct.unpack_from("<I", told, _EXIT_REASON)
    return bool(reason == _EXIT_IO)


def _memory(turns: int) -> mmap.mmap:
    """Memory with three levels of page tables for its first 2 MiB, and the loop."""
    memory = mmap.mmap(-1, _MEMORY_BYTES)
    present, large = 0x3, 0x80
    for place, entry in ((0x1000, 0x2000), (0x2000, 0x3000), (0x3000, large)):
        struct.pack_into("<Q", memory, place, entry | present)
    # mov rcx, turns; dec rcx; jnz; out 0x10, al
    code = b"\x48\xb9" + struct.pack("<Q", turns) + b"\x48\xff\xc9\x75\xfb\xe6\x10"
    memory[_CODE : _CODE + len(code)] = code
    return memory


def _enter_long_mode(special: bytearray) -> None:
    """Write what 64-bit code needs into `struct kvm_sregs`: flat segments, paging, long mode."""
    for number, (kind, selector) in enumerate([(0xB, 0x8), *[(0x3, 0x10)] * 5]):
        wide = kind == 0xB  # the code segment comes first
        at = number * _SEGMENT_BYTES
        bits = (kind, 1, 0, not wide, 1, wide, 1, 0)  # type, p, dpl, db, s, l, g, avl
        struct.pack_into("<QIH8B", special, at, 0, 0xFFFF_FFFF, selector, *bits)
    cr0, cr3, cr4, efer = 0x8000_0011, 0x1000, 0x20, 0x500
    struct.pack_into("<QQQQQQ", special, _CONTROL, cr0, 0, cr3, cr4, 0, efer)


def main() -> int:
    """Return 0 if the loop of `sys.argv[1]` turns ended; one that takes long is killed."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)  # SIGPROF ends the process
    try:
        return 0 if run(int(sys.argv[1])) else 1
    except OSError:
        return 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    sys.exit(main())
