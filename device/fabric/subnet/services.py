"""The services that ports of the subnet announce (InfiniBand vol. 1, 15.2.5.14)."""

from __future__ import annotations

from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.ib.sa import SERVICE_RECORD

MAX_SERVICES = 1024

Key = tuple[int, bytes, int]
"""The service id, GID and P_Key of a service."""


class Services:
    """The service records, each with the port that registered it, until that port leaves."""

    def __init__(self) -> None:
        self._records: dict[Key, tuple[PortAgent, bytes]] = {}

    def register(self, port: PortAgent, record: bytes) -> bool:
        """Add or replace a record; returns False when there is no room."""
        key = _key(record)
        if key not in self._records and len(self._records) >= MAX_SERVICES:
            return False
        self._records[key] = (port, record)
        return True

    def withdraw(self, record: bytes) -> bytes | None:
        """Remove a record and return it, None without one."""
        _, found = self._records.pop(_key(record), (None, None))
        return found

    def forget(self, port: PortAgent) -> None:
        """Remove the records of a port that is out of service."""
        self._records = {key: item for key, item in self._records.items() if item[0] is not port}

    def records(self) -> list[bytes]:
        """Return all service records."""
        return [record for _, record in self._records.values()]


def _key(record: bytes) -> Key:
    get = SERVICE_RECORD.get
    return (
        get(record, "service_id"),
        SERVICE_RECORD.get_raw(record, "gid"),
        get(record, "pkey"),
    )
