"""The device server: HCAs on vfio-user sockets, a fabric between them, one loop, one bus log."""

from __future__ import annotations

import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from device.buslog.writer import EventLog
from device.fabric.local import LocalFabric
from device.hca.config import PLAIN, Features, HcaConfig
from device.hca.device import Hca
from device.layout import pci as layout
from device.layout.mlx4 import bar0, uar
from device.pci.capabilities import Express, MsiX, PowerManagement
from device.pci.endpoint import Bar, Endpoint, Identity
from device.pci.loop import EventLoop

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.05
CONNECTX3 = Identity(
    layout.VENDOR_MELLANOX,
    layout.DEVICE_CONNECTX3,
    layout.CLASS_ETHERNET,
    layout.VENDOR_MELLANOX,
    layout.SUBSYSTEM_CONNECTX3,
)
BARS = (Bar(0, bar0.BAR0_SIZE), Bar(2, uar.BAR2_SIZE, prefetchable=True))


@dataclass(frozen=True, slots=True)
class HcaSpec:
    """One HCA to serve: its name in the log, its socket, its MAC address."""

    name: str
    socket: Path
    mac: bytes


class Server:
    """All devices of one process. Raises OSError when a socket cannot be served."""

    def __init__(self, specs: list[HcaSpec], events: EventLog, features: Features = PLAIN) -> None:
        self.loop = EventLoop()
        self._events = events
        self._features = features
        # one network for the first ports of all HCAs, one for the second
        self._fabrics = [LocalFabric() for _ in range(features.ports)]
        self._endpoints: list[Endpoint] = []
        try:
            for spec in specs:
                self._add(spec)
        except BaseException:
            self.close()
            raise

    def _add(self, spec: HcaSpec) -> None:
        config = HcaConfig.of_mac(spec.name, spec.mac, features=self._features)
        vectors = config.msix_vectors
        capabilities = (
            PowerManagement(),
            MsiX(vectors, 0, bar0.MSIX_TABLE_OFFSET, bar0.MSIX_PBA_OFFSET),
            Express(),
        )
        endpoint = Endpoint(
            spec.name, spec.socket, CONNECTX3, BARS, capabilities, vectors, self.loop, self._events
        )
        self._endpoints.append(endpoint)
        endpoint.plug(Hca(endpoint, self._fabrics, config))

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.loop.stop())
        self._flush()
        print("ready", flush=True)
        self.loop.run()

    def _flush(self) -> None:
        self._events.flush()
        self.loop.call_later(FLUSH_SECONDS, self._flush)

    def close(self) -> None:
        """Close sockets and log."""
        for endpoint in self._endpoints:
            endpoint.close()
        self._events.close()
        self.loop.close()
        sys.stdout.flush()
