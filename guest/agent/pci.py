"""The PCI functions of the guest and their drivers, by sysfs.

No process is started for it: under TCG a fork costs more than everything done here.
"""

from __future__ import annotations

import os
import time
from typing import Any

from bluebridge.guest.agent.operation import OperationError

_BUS = "sys/bus/pci"
_LOOKS = 100
_PAUSE = 0.005
"""The seconds between two looks at a function that its driver is about to suspend."""


def functions(root: str = "/") -> list[dict[str, str]]:
    """Return `address` (0000:01:00.0), `id` (15b3:1003) and `driver` of every function.

    `driver` is empty for none.
    """
    folder = os.path.join(root, _BUS, "devices")
    return [_function(folder, address) for address in sorted(os.listdir(folder))]


def _function(folder: str, address: str) -> dict[str, str]:
    path = os.path.join(folder, address)
    numbers = [_word(os.path.join(path, name)) for name in ("vendor", "device")]
    return {
        "address": address,
        "id": ":".join(number.removeprefix("0x") for number in numbers),
        "driver": _driver(path),
    }


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
