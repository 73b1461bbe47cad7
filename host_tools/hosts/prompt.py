"""What `bluebridge python HOST` has at its prompt: the side's HCA, open, and the names of verbs."""

from __future__ import annotations

import atexit
import sys

from bluebridge.guest.bus.machine import open_bus
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import *  # noqa: F403 (the names of the prompt)

try:
    bus = open_bus()
    hca = open_device(bus)
except DeviceError as error:
    sys.exit(f"bluebridge: {error}")
atexit.register(hca.close)
print(f"hca is {hca.name}, open, with the verbs of bluebridge.guest.verbs; bus has its registers.")
