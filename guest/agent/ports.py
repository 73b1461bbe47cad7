"""Finding the virtio-serial ports that were meant for the agent."""

from __future__ import annotations

import contextlib
import os

from bluebridge.guest.agent import PORT

_CLASS = "/sys/class/virtio-ports"
_NAMES = "/dev/virtio-ports"


def find() -> dict[str, str]:
    """Device nodes of the agent's ports by port name; there is no udev to make links."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for node in os.listdir(_CLASS):
            with contextlib.suppress(OSError), open(f"{_CLASS}/{node}/name") as stream:
                name = stream.read().strip()
                if name == PORT or name.startswith(PORT + "."):
                    found[name] = f"/dev/{node}"
    return found


def open_port(name: str, node: str) -> int | None:
    """The port, opened for both directions and linked as usual; None if it is not ready."""
    try:
        fd = os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # still being made, or another agent has it
        return None
    with contextlib.suppress(OSError):
        os.makedirs(_NAMES, exist_ok=True)
        os.symlink(node, f"{_NAMES}/{name}")
    return fd
