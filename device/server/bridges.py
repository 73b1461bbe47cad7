"""The bridges and DMA engines of a server: two guests, a PCI Express link between them.

A window may be the peer's memory (`Alias`), so that stores run at the speed of memory. QEMU tells
each guest's DMA engine of the guest's memory, and the peer's bridge lets its own client map the
file of that memory at the same addresses. So the window always shows the peer's bus from address 0
on, and no register changes that. A client maps once, when the bridge is plugged in: both engines
must be there before the first bridge, and the window cannot be closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bluebridge.device.armed_faults import ArmedFaults
from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.dma import engine
from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.layout.ioat import LOG_SUFFIX, MOST_CHANNELS, MSIX_PENDING, MSIX_TABLE
from bluebridge.device.layout.ntb.models import BarSizes, BridgeModel
from bluebridge.device.ntb.selection import shape_of
from bluebridge.device.ntb.shape import BridgeLink, Bridging, Shape, identity_of
from bluebridge.device.pci.config_space import capabilities
from bluebridge.device.pci.function import ConfigRegister, Function
from bluebridge.device.pci.host import Host
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.pyvfio_user import DmaRegion, MappedFile, Protection
from bluebridge.device.server.adapters import Adapter
from bluebridge.device.server.named_faults import GuestBridge
from bluebridge.device.server.settings import FunctionSpec, ServerSettings
from bluebridge.device.show import Tables, bridge_tables, engine_tables


class Alias:
    """Lends a bridge the memory of its peer to map: the longest stretch that one file holds.

    That is all of a guest's memory from 1 MiB to its end below 4 GiB; accesses to the remaining
    addresses are trapped as usual.
    """

    def __init__(self, lender: Function, bridge: Function, bar: int) -> None:
        """Let `bar` of `bridge` show the memory of the guest that `lender` is in."""
        self._bridge = bridge
        self._bar = bar
        self._shown: DmaRegion | None = None
        lender.watch_memory(self._borrow)

    def _borrow(self, region: DmaRegion, there: bool) -> None:
        if not there:
            if region is self._shown:
                self._shown = None
                self._bridge.alias(self._bar, None)
            return
        if region.file is None or not region.protection & Protection.WRITE:
            return
        longer = self._shown is None or region.length > self._shown.length
        if longer and region.file.offset == region.iova:
            self._shown = region
            file = MappedFile(region.file.fd, region.iova, region.length)
            self._bridge.alias(self._bar, file)


class Hosts(dict[str, Host]):
    """The buses of all guests by guest name; a bus is made when it is first asked for."""

    def __missing__(self, name: str) -> Host:
        return self.setdefault(name, Host(name))


class Bridges:
    """Serves endpoints and bridges; raises `ValueError` for other numbers of these than 0 or 2."""

    def __init__(
        self, spec: ServerSettings, hosts: Hosts, loop: EventLoop, events: EventLog, training: float
    ) -> None:
        """Serve what `spec` names; the link trains for `training` seconds before it is up."""
        if len(spec.bridges) not in (0, 2):
            raise ValueError("a bridge needs a peer: give --ntb twice, or not at all")
        options, model = spec.bridge, spec.bridge.model
        shape = shape_of(model, BarSizes(options.bar_sizes), options.window_alias, options.hang_on)
        engines = {each.name for each in spec.engines}
        for each in spec.bridges:
            if options.window_alias and each.name not in engines:
                raise ValueError(f"--window-alias wants a DMA engine in {each.name}")
        self._hosts = hosts
        self._loop = loop
        self._events = events
        self._names: set[str] = set()
        self.endpoints: list[Function] = []
        self._buses: dict[str, Function] = {}
        self._aliases: list[Alias] = []
        self.tables: dict[str, Tables] = {}
        """The tables for `bluebridge show` of each function, by its name in the log."""
        self.engines: dict[str, list[DmaEngine]] = {each.name: [] for each in spec.engines}
        """The DMA engines of each guest that has some."""
        self._sides = [each.name for each in spec.bridges]
        self.link = BridgeLink(loop.call_later, training)
        try:
            self.bridges = [
                self._bridge(each, model, shape, shape.registers[side])
                for side, each in enumerate(spec.bridges)
            ]
            for each in spec.engines:
                self._engine(each, model.engine_version, options.strict_windows)
            if options.window_alias:
                self._aliases = list(self._alias(spec))
        except BaseException:
            self.close()
            raise
        if self.bridges:
            self.bridges[0].join(self.bridges[1])

    def _alias(self, spec: ServerSettings) -> Iterator[Alias]:
        """Make each bridge map the memory of its peer's guest, which that guest's engine knows."""
        bridges = self.endpoints[: len(spec.bridges)]
        engines = self.endpoints[len(spec.bridges) :]
        lenders = {each.name: engine for each, engine in zip(spec.engines, engines, strict=True)}
        for bridge, peer in zip(bridges, reversed(spec.bridges), strict=True):
            yield Alias(lenders[peer.name], bridge, spec.bridge.model.window_bars[1])

    def close(self) -> None:
        """Close the sockets of all endpoints."""
        for endpoint in self.endpoints:
            endpoint.close()

    def _bridge(
        self,
        spec: FunctionSpec,
        model: BridgeModel,
        shape: Shape,
        registers: Sequence[ConfigRegister],
    ) -> Bridging:
        function = Function(
            self._named(f"{spec.name}.{model.log_suffix}"), spec.socket, identity_of(model),
            shape.bars, shape.capabilities, shape.vectors, self._loop, self._events,
            self._hosts[spec.name], registers,
        )  # fmt: skip
        self.endpoints.append(function)
        self._buses[spec.name] = function
        bridge = shape.make(function, self.link)
        function.plug_bridge(bridge)
        self.tables[function.name] = bridge_tables(bridge, model, function)
        return bridge

    def _engine(self, spec: FunctionSpec, version: int, strict: bool) -> None:
        function = Function(
            self._named(f"{spec.name}.{LOG_SUFFIX}"), spec.socket, engine.identity(version),
            engine.BARS, capabilities(MOST_CHANNELS, MSIX_TABLE, MSIX_PENDING), MOST_CHANNELS,
            self._loop, self._events, self._hosts[spec.name],
        )  # fmt: skip
        self.endpoints.append(function)
        self._buses.setdefault(spec.name, function)
        copier = DmaEngine(function, version=version, strict=strict)
        function.plug(copier)
        self.engines[spec.name].append(copier)
        self.tables[function.name] = engine_tables(copier, function)

    def by_guest(self, hcas: Mapping[str, Adapter]) -> dict[str, GuestBridge]:
        """Return the bridge and the engines of each guest that has some, for faults by name."""
        points = [bridge.fault_points for bridge in self.bridges]
        sides = dict(zip(self._sides, zip(points, reversed(points), strict=True), strict=True))
        found = {}
        for name, bus in self._buses.items():
            own, far = sides.get(name, (None, None))
            hca = hcas.get(name)
            armed = ArmedFaults(bus) if hca is None else hca.faults
            engines = self.engines.get(name, ())
            found[name] = GuestBridge(bus, own, far, engines, armed, bool(self._aliases))
        return found

    def _named(self, name: str) -> str:
        """Return a name for the log that no function has yet: `name`, else `name-2` and so on."""
        number, found = 1, name
        while found in self._names:
            number += 1
            found = f"{name}-{number}"
        self._names.add(found)
        return found
