"""Numbers of linux/vfio.h that a user-space driver without an IOMMU needs."""

from __future__ import annotations

import struct

NOIOMMU_IOMMU = 8
API_VERSION = 0
GROUP_VIABLE = 1
CONFIG_REGION = 7
REGION_MMAP = 4
MSIX_INDEX = 2
SET_IRQS_NONE, SET_IRQS_EVENTFD, SET_IRQS_TRIGGER = 1 << 0, 1 << 2, 1 << 5
COMMAND_REGISTER = 4
COMMAND_MEMORY_AND_MASTER = 6

REGION_INFO_FORM = struct.Struct("=IIIIQQ")
IRQ_INFO_FORM = struct.Struct("=IIII")
SET_IRQS_FORM = struct.Struct("=IIIII")


def _request(number: int) -> int:
    return ord(";") << 8 | (100 + number)


GET_API_VERSION = _request(0)
CHECK_EXTENSION = _request(1)
SET_IOMMU = _request(2)
GROUP_GET_STATUS = _request(3)
GROUP_SET_CONTAINER = _request(4)
GROUP_GET_DEVICE_FD = _request(6)
DEVICE_GET_REGION_INFO = _request(8)
DEVICE_GET_IRQ_INFO = _request(9)
DEVICE_SET_IRQS = _request(10)
DEVICE_RESET = _request(11)
