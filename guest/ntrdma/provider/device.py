"""The device of verbs and its protection domains."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.ntrdma.engine.regions import MOST_PAGES
from bluebridge.guest.ntrdma.interface import Interface
from bluebridge.guest.ntrdma.provider.queue_pair import NtrdmaAddress, NtrdmaQp, NtrdmaSrq
from bluebridge.guest.ntrdma.provider.resources import (
    NtrdmaChannel,
    NtrdmaCq,
    NtrdmaFastMr,
    NtrdmaMr,
    all_memory,
    region_of,
)
from bluebridge.guest.ntrdma.service import Service
from bluebridge.guest.ntrdma.transports.back_end import BackEnd
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.values import (
    AddressVector,
    CompletionChannel,
    DeviceAttr,
    PortAttr,
    QpInit,
)

FIRST_KEY, KEYS_APART, KEY_BITS = 0x1000, 0x100, 32
"""Keys that were not used before: an index, and a low byte that fast registration counts."""
NAME = "ntrdma0"
RESERVED_KEY = 1
"""The key, in every protection domain, of a region over all memory that only its owner may use."""
_ADDRESS_TAG = b"ntrd"
_ADDRESS_BYTES = 12
_MTU = 4096
_MOST_PIECES = 32
_LOCAL_WRITE = AccessFlags.LOCAL_WRITE


class NtrdmaPd:
    """A protection domain."""

    def __init__(self, service: Service, keys: Iterator[int]) -> None:
        self._service, self._keys = service, keys
        made = service.call(service.engine.own.resources.create_domain, "protection domain")
        self._domain = made.domain
        self.pdn = self._domain.key
        span = service.back_end.span
        self._all = NtrdmaMr(service, self._domain, all_memory(RESERVED_KEY, span, _LOCAL_WRITE))
        self._open = True

    def _new_key(self) -> int:
        return next(self._keys) % (1 << KEY_BITS)

    def get_dma_mr(self, access: AccessFlags | int = _LOCAL_WRITE) -> NtrdmaMr:
        """A region over all of memory; addresses in it are DMA addresses."""
        region = all_memory(self._new_key(), self._service.back_end.span, access)
        return NtrdmaMr(self._service, self._domain, region)

    def reg_mr(
        self,
        memory: int | Sequence[int],
        length: int,
        iova: int | None = None,
        access: AccessFlags | int = _LOCAL_WRITE,
        page_shift: int = 12,
    ) -> NtrdmaMr:
        region = region_of(self._new_key(), memory, length, iova, access, page_shift)
        return NtrdmaMr(self._service, self._domain, region)

    def alloc_fast_reg_mr(self, max_pages: int) -> NtrdmaFastMr:
        index = self._new_key() >> 8
        return NtrdmaFastMr(self._service, self._domain, index, max_pages)

    def create_qp(self, init: QpInit) -> NtrdmaQp:
        return NtrdmaQp(self._service, self._domain, init)

    def create_srq(self, max_wr: int, max_sge: int = 1) -> NtrdmaSrq:
        return NtrdmaSrq(self._service, self._new_key() >> 8, max_wr, max_sge)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._all.close()
            resources = self._service.engine.own.resources
            what = "end of a protection domain"
            self._service.call(lambda: resources.delete_domain(self._domain), what)


class NtrdmaDevice:
    """One end of NTRDMA, the second provider of `guest.verbs.interface.Device`.

    Its Ethernet device is `network`, which it closes, if there is one.
    """

    name = NAME
    ethernet_port = None

    def __init__(
        self,
        back_end: BackEnd,
        watchers: Sequence[Callable[[PortState], None]] = (),
        network: Interface | None = None,
    ) -> None:
        """`watchers` are told each state of the port, under the service's lock."""
        self.network = network
        self.service = Service(back_end, NAME, watchers, network)
        self.health = self.service.health
        self.address = _ADDRESS_TAG + os.urandom(_ADDRESS_BYTES - len(_ADDRESS_TAG))
        self.local_dma_lkey: int | None = RESERVED_KEY
        self.async_events = self.service.events
        self._keys = itertools.count(FIRST_KEY, KEYS_APART)
        self._back_end = back_end
        self._open = True

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the peer is there. Raises `VerbsError` when the time has passed."""
        if not self.service.wait_ready(timeout):
            self.health.check()
            port = self.service.engine.port
            state = port.state.name.lower().replace("_", " ")
            raise VerbsError(
                f"{NAME}: no peer (port state: {state}; it was last quiesced since {port.reason})"
            )

    def port(self, number: int) -> NtrdmaDevice:
        """The device itself: it has one port. Raises `VerbsError` for another number."""
        if number != 1:
            raise VerbsError(f"{NAME} has no port {number}")
        return self

    def address_vector(self, address: bytes) -> NtrdmaAddress:
        """The way to the device with that `address`. Raises `VerbsError` for nonsense."""
        if len(address) != _ADDRESS_BYTES or not address.startswith(_ADDRESS_TAG):
            raise VerbsError(f"{address.hex()} is not the address of an NTRDMA device")
        return NtrdmaAddress(address)

    def peer(self) -> AddressVector:
        """The way to the one device that can be reached."""
        return NtrdmaAddress(b"")

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        with self.service.lock:
            return self._back_end.map(length, align)

    def alloc_pd(self) -> NtrdmaPd:
        return NtrdmaPd(self.service, self._keys)

    def create_comp_channel(self) -> NtrdmaChannel:
        return NtrdmaChannel(self.service)

    def create_cq(self, entries: int, channel: CompletionChannel | None = None) -> NtrdmaCq:
        if channel is not None and not isinstance(channel, NtrdmaChannel):
            raise VerbsError("the completion channel is not one of this device")
        try:
            return NtrdmaCq(self.service, channel)
        except MemoryError as error:
            raise VerbsError(str(error)) from error

    def query_device(self) -> DeviceAttr:
        return DeviceAttr(
            name=NAME,
            fw_version="0.1",
            node_guid=int.from_bytes(self.address[4:], "big"),
            max_qp_wr=1 << 14,
            max_cqe=1 << 16,
            max_sge=_MOST_PIECES,
            max_qp_rd_atomic=16,
            max_msg=1 << 31,
            page_size_cap=(1 << 64) - 4096,
            max_fast_reg_pages=MOST_PAGES,
            local_inv=True,
            fast_reg=True,
            flags=0,
        )

    def query_port(self) -> PortAttr:
        with self.service.lock:
            return PortAttr(active=self.service.engine.ready, active_mtu=_MTU)

    def close(self) -> None:
        if self._open:
            self._open = False
            self.service.close()

    def __enter__(self) -> NtrdmaDevice:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
