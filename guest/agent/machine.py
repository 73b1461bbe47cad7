"""Reads and sets for the agent its guest's names, addresses, randomness and PCI drivers.

No process is started for it: under TCG a fork costs more than everything done here.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
import time
import uuid
from typing import Any

from bluebridge.guest.agent.served_port import OperationError

_RNDADDENTROPY = 0x40085203
"""_IOW('R', 3, int[2]) of linux/random.h: bit count, byte count, bytes; feeds and credits."""
_RNDRESEEDCRNG = 0x5207
"""_IO('R', 7) of linux/random.h: makes the generator use what was fed at once."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFHWADDR = 0x8913, 0x8914, 0x8924
_IFF_UP = 1
_ARPHRD_ETHER = 1
_MAC_PREFIX_BYTES = 5
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_OWN_BOOT_ID = "/run/boot_id"
_MS_BIND = 0x1000
"""The flag MS_BIND of linux/mount.h."""
_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any snapshot: no restore waits for it

_BUS = "sys/bus/pci"
_LOOKS = 100
_PAUSE = 0.005
"""The seconds between two looks at a function that its driver is about to suspend."""


def personalise(request: dict[str, Any], root: str = "/") -> dict[str, Any]:
    """Apply the values that `request` has; returns those that were set.

    `hostname`; `machine_id`, 32 hexadecimal digits; `boot_id`, a UUID; `clock`, seconds since
    1970; `entropy`, hexadecimal; `mac_prefix`, five bytes in hexadecimal that the virtio NICs
    complete with their number. Files are below `root`; with any other than / the clock, the boot
    id and the kernel's random pool are out of reach. Raises `OSError`, `ValueError`,
    `OperationError`.
    """
    answer: dict[str, Any] = {}
    # The pool first, so that what is drawn from it from now on differs between the guests.
    if "entropy" in request:
        _refuse_below(root, "entropy")
        add_entropy(bytes.fromhex(request["entropy"]))
    if "clock" in request:
        _refuse_below(root, "clock")
        time.clock_settime(time.CLOCK_REALTIME, float(request["clock"]))
    if "hostname" in request:
        answer["hostname"] = _set_hostname(root, str(request["hostname"]))
    if "machine_id" in request:
        answer["machine_id"] = _set_machine_id(root, str(request["machine_id"]))
    if "boot_id" in request:
        _refuse_below(root, "boot id")
        answer["boot_id"] = _set_boot_id(str(request["boot_id"]))
    if "mac_prefix" in request:
        answer["macs"] = _set_macs(root, bytes.fromhex(request["mac_prefix"]))
    return answer


def _refuse_below(root: str, what: str) -> None:
    if root != "/":
        raise OperationError("request", f"the {what} of {root} cannot be set, only that of /")


def add_entropy(seed: bytes) -> None:
    """Mix `seed` into the kernel's random pool and reseed its generator from it."""
    # An integer count of bits first: random(4), RNDADDENTROPY.
    info = struct.pack("ii", len(seed) * 8, len(seed)) + seed
    with open("/dev/urandom", "rb", buffering=0) as pool:
        fcntl.ioctl(pool, _RNDADDENTROPY, info)
        fcntl.ioctl(pool, _RNDRESEEDCRNG)


def _set_hostname(root: str, name: str) -> str:
    if not name or len(name) > 64 or not all(char.isalnum() or char in "-." for char in name):
        raise OperationError("request", f"{name!r} is no host name")
    _write(os.path.join(root, "proc/sys/kernel/hostname"), name + "\n")
    _write(os.path.join(root, "etc/hostname"), name + "\n")
    return name


def _set_machine_id(root: str, machine_id: str) -> str:
    if len(machine_id) != 32 or int(machine_id, 16) == 0:
        raise OperationError("request", f"{machine_id!r} is no machine-id")
    _write(os.path.join(root, "etc/machine-id"), machine_id.lower() + "\n")
    return machine_id.lower()


def _set_boot_id(text: str) -> str:
    """Mount another file over the kernel's boot id, which never changes once it was read.

    drivers/char/random.c: proc_do_uuid makes it at the first reading, perhaps before a snapshot.
    """
    boot_id = str(uuid.UUID(text))
    mounted = os.path.exists(_OWN_BOOT_ID)
    _write(_OWN_BOOT_ID, boot_id + "\n")
    os.chmod(_OWN_BOOT_ID, 0o444)
    if not mounted and _libc.mount(_OWN_BOOT_ID.encode(), _BOOT_ID.encode(), None, _MS_BIND, None):
        code = ctypes.get_errno()
        os.unlink(_OWN_BOOT_ID)
        raise OSError(code, os.strerror(code), _BOOT_ID)
    return boot_id


def virtio_nics(root: str) -> list[str]:
    """Return the names of the virtio network interfaces in the order of their numbers."""
    folder = os.path.join(root, "sys/class/net")
    found: list[tuple[int, str]] = []
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        driver = os.path.realpath(os.path.join(folder, name, "device/driver"))
        if os.path.basename(driver) == "virtio_net":
            with open(os.path.join(folder, name, "ifindex")) as stream:
                found.append((int(stream.read()), name))
    return [name for _, name in sorted(found)]


def _set_macs(root: str, prefix: bytes) -> dict[str, str]:
    if len(prefix) != _MAC_PREFIX_BYTES or prefix[0] & 1:
        raise OperationError("request", "a MAC prefix is five bytes of a unicast address")
    macs: dict[str, str] = {}
    for number, name in enumerate(virtio_nics(root)):
        mac = prefix + bytes([number])
        _set_mac(name, mac)
        macs[name] = mac.hex(":")
    return macs


def _set_mac(name: str, mac: bytes) -> None:
    """Set a MAC address as netdevice(7) says; an interface that refuses while up is taken down."""
    import socket  # slow to import, and most guests have no such NIC

    request = struct.pack("16sH6s8x", name.encode(), _ARPHRD_ETHER, mac)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        with contextlib.suppress(OSError):
            fcntl.ioctl(control, _SIOCSIFHWADDR, request)
            return
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
        (flags,) = struct.unpack_from("H", answer, 16)
        for change in (flags & ~_IFF_UP, None, flags):
            if change is None:
                fcntl.ioctl(control, _SIOCSIFHWADDR, request)
            else:
                fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), change))


def functions(root: str = "/") -> list[dict[str, str]]:
    """Return `address` (0000:01:00.0), `id` (15b3:1003) and `driver` of every function.

    `driver` is empty for none.
    """
    folder = os.path.join(root, _BUS, "devices")
    found = []
    for address in sorted(os.listdir(folder)):
        path = os.path.join(folder, address)
        numbers = [_word(os.path.join(path, name)) for name in ("vendor", "device")]
        identity = ":".join(number.removeprefix("0x") for number in numbers)
        found.append({"address": address, "id": identity, "driver": _driver(path)})
    return found


def _word(path: str) -> str:
    with open(path, encoding="ascii") as stream:
        return stream.read().strip()


def _driver(path: str) -> str:
    try:
        return os.path.basename(os.readlink(os.path.join(path, "driver")))
    except FileNotFoundError:
        return ""


def bind(address: str, driver: str, root: str = "/") -> dict[str, Any]:
    """Give the function at `address` to `driver` in place of its present driver.

    Returns `{"driver": name}`. Raises `OperationError` when there is no such function or the
    driver does not take it. vfio-pci suspends a function that is not
    open, a moment after it took it. That is waited for, so that the next accesses on the bus are
    those of the next user only.
    """
    bus = os.path.join(root, _BUS)
    path = os.path.join(bus, "devices", address)
    if "/" in address or not os.path.isdir(path):
        raise OperationError("pci", f"there is no PCI function {address}")
    if _driver(path) == driver:
        return {"driver": driver}
    if _driver(path):
        _write(os.path.join(path, "driver", "unbind"), address)
    _write(os.path.join(path, "driver_override"), driver)
    _write(os.path.join(bus, "drivers_probe"), address)
    if _driver(path) != driver:
        raise OperationError("pci", f"{driver} does not take {address}; is it loaded? see dmesg")
    _wait_until_idle(os.path.join(path, "power"))
    return {"driver": driver}


def _wait_until_idle(power: str) -> None:
    """Wait until a function is suspended, for half a second at most.

    A driver that keeps its function awake is not waited for.
    """
    for _ in range(_LOOKS):
        try:
            if _word(os.path.join(power, "control")) != "auto":
                return
            if _word(os.path.join(power, "runtime_status")) not in ("active", "suspending"):
                return
        except OSError:
            return
        time.sleep(_PAUSE)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as stream:
        stream.write(text)
