"""The loopback device and its protection domains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.guest.verbs import (
    AccessFlags,
    CompletionChannel,
    DeviceAttr,
    PortAttr,
    QpInit,
    QpType,
    VerbsError,
)
from tests.models.verbs.loopback.completions import LoopbackChannel, LoopbackCq, LoopbackHealth
from tests.models.verbs.loopback.network import LoopbackAddress, Network
from tests.models.verbs.loopback.queue_pair import LoopbackQp
from tests.models.verbs.loopback.receives import LoopbackSrq
from tests.models.verbs.loopback.regions import MOST_PAGES, RESERVED_KEY, Memory, Region, Regions

_FIRST_NUMBER = 0x40
_MTU = 4096


class LoopbackPd:
    """A protection domain of the device at `address`."""

    def __init__(
        self, network: Network, address: bytes, regions: Regions, numbers: Iterator[int]
    ) -> None:
        self.pdn = next(numbers)
        self._network, self._address = network, address
        self._regions, self._numbers = regions, numbers

    def get_dma_mr(self, access: AccessFlags | int = AccessFlags.LOCAL_WRITE) -> Region:
        """A region over all of memory."""
        return self._regions.over_all_memory(self.pdn, access)

    def reg_mr(
        self,
        memory: int | Sequence[int],
        length: int,
        iova: int | None = None,
        access: AccessFlags | int = AccessFlags.LOCAL_WRITE,
        page_shift: int = 12,
    ) -> Region:
        """Register contiguous memory, or pages."""
        if isinstance(memory, int):
            pages = list(range(memory & -4096, memory + length, 4096))
            size, start = 4096, memory
            if iova is not None and (iova ^ memory) % size:
                text = f"IOVA {iova:#x} and address {memory:#x} differ in their page offset"
                raise VerbsError(text)
        else:
            pages, size, start = list(memory), 1 << page_shift, memory[0]
        region = self._regions.new(self.pdn)
        region.register(pages, size, start if iova is None else iova, length, access)
        return region

    def alloc_fast_reg_mr(self, max_pages: int) -> Region:
        """A region for REG_MR."""
        if not 1 <= max_pages <= MOST_PAGES:
            raise VerbsError(f"{max_pages} pages: 1 to {MOST_PAGES} are possible")
        region = self._regions.new(self.pdn)
        region.max_pages = max_pages
        return region

    def create_qp(self, init: QpInit) -> LoopbackQp:
        """A queue pair in state RESET; reliable connected ones only."""
        if init.type is not QpType.RC:
            raise VerbsError(f"the loopback device has no {init.type.name} queue pairs")
        number = next(self._numbers)
        return LoopbackQp(self._network, self._address, number, self.pdn, init, self._regions)

    def create_srq(self, max_wr: int, max_sge: int = 1) -> LoopbackSrq:
        """A shared receive queue."""
        return LoopbackSrq(self._network, next(self._numbers), max_wr, max_sge)

    def close(self) -> None:
        """Nothing is held."""


class LoopbackDevice:
    """One end of a network. `memory` is all DMA memory it has."""

    name = "loopback0"
    ethernet_port = None
    local_dma_lkey = RESERVED_KEY

    def __init__(self, network: Network) -> None:
        self.address = network.new_address()
        self.health = LoopbackHealth()
        self._network = network
        self._memory = Memory()
        self._regions = Regions(self._memory)
        self._numbers = itertools.count(_FIRST_NUMBER)

    def port(self, number: int) -> LoopbackDevice:
        """It has one."""
        if number != 1:
            raise VerbsError(f"{self.name} has no port {number}")
        return self

    def address_vector(self, address: bytes) -> LoopbackAddress:
        """The way to the device with that address."""
        if len(address) != len(self.address):
            raise VerbsError(f"{address.hex()} is not the address of a loopback device")
        return LoopbackAddress(address)

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Zeroed memory."""
        return self._memory.allocate(length, align)

    def alloc_pd(self) -> LoopbackPd:
        """A protection domain."""
        return LoopbackPd(self._network, self.address, self._regions, self._numbers)

    def create_comp_channel(self) -> LoopbackChannel:
        """A completion channel."""
        return LoopbackChannel(self._network, self.health)

    def create_cq(self, entries: int, channel: CompletionChannel | None = None) -> LoopbackCq:
        """A completion queue, which grows as needed."""
        if channel is not None and not isinstance(channel, LoopbackChannel):
            raise VerbsError("the completion channel is not one of this device")
        return LoopbackCq(self._network, next(self._numbers), channel)

    def query_device(self) -> DeviceAttr:
        """What the device can do: whatever the interface asks for, without limits."""
        return DeviceAttr(
            name=self.name,
            fw_version="0",
            node_guid=int.from_bytes(self.address[8:], "big"),
            max_qp_wr=1 << 16,
            max_cqe=1 << 16,
            max_sge=32,
            max_qp_rd_atomic=16,
            max_msg=1 << 30,
            page_size_cap=(1 << 64) - 4096,
            max_fast_reg_pages=MOST_PAGES,
            local_inv=True,
            fast_reg=True,
            flags=0,
        )

    def query_port(self) -> PortAttr:
        """The port is always active."""
        return PortAttr(active=True, active_mtu=_MTU)

    def close(self) -> None:
        """Leave the network."""
        with self._network.lock:
            for key, pair in list(self._network.pairs.items()):
                if key[0] == self.address:
                    del self._network.pairs[key]
                    del pair

    def __enter__(self) -> LoopbackDevice:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
