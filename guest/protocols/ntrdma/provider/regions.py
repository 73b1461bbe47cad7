"""Memory regions of NTRDMA, as verbs have them."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.guest.protocols.ntrdma.engine.regions import (
    Domain,
    FastRegion,
    Region,
    check_access,
    segments_of,
)
from bluebridge.guest.protocols.ntrdma.service import Service
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.errors import VerbsError

PAGE = 4096


class NtrdmaMr:
    """A registered region; lkey and rkey are one."""

    def __init__(self, service: Service, domain: Domain, region: Region) -> None:
        self.lkey = self.rkey = region.key
        self._service, self._domain = service, domain
        self._open = True
        local = service.engine.own.local
        service.call(lambda: local.register(domain, region), f"region {region.key:#x}")

    def close(self) -> None:
        """Deregister; a second call does nothing."""
        if self._open:
            self._open = False
            local = self._service.engine.own.local
            self._service.call(
                lambda: local.deregister(self._domain, self.lkey),
                f"end of region {self.lkey:#x}",
            )


class NtrdmaFastMr(FastRegion):
    """A region for REG_MR."""

    def __init__(self, service: Service, domain: Domain, index: int, max_pages: int) -> None:
        super().__init__(domain, index, max_pages)
        self._service = service
        self._open = True
        with service.lock:
            service.engine.own.local.add_fast_region(self)

    def close(self) -> None:
        """Deregister; a second call does nothing."""
        if self._open:
            self._open = False
            local = self._service.engine.own.local
            self._service.call(lambda: local.remove_fast_region(self), "end of a registration")


def region_of(
    key: int,
    memory: int | Sequence[int],
    length: int,
    iova: int | None,
    access: AccessFlags | int,
    page_shift: int,
) -> Region:
    """The region that `ProtectionDomain.reg_mr` is asked for. Raises `VerbsError`."""
    if isinstance(memory, int):
        if iova is not None and (iova ^ memory) % PAGE:
            raise VerbsError(f"IOVA {iova:#x} and address {memory:#x} differ in their page offset")
        pages: Sequence[int] = range(memory & -PAGE, memory + length, PAGE)
        size, start = PAGE, memory
    else:
        pages, size, start = memory, 1 << page_shift, memory[0]
    rights = check_access(access)
    address = start if iova is None else iova
    segments = segments_of(pages, size, address, length)
    region = Region(key, rights, address, length, len(segments))
    region.append(segments)
    return region


def all_memory(key: int, span: tuple[int, int], access: AccessFlags | int) -> Region:
    """A region over all that the peer can store into; its addresses are those of the bus."""
    region = Region(key, int(access), span[0], span[1], 1)
    region.append([span])
    return region
