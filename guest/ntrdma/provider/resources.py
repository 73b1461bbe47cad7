"""Memory regions and completion queues of NTRDMA, as verbs have them."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Sequence

from bluebridge.guest.errors import VerbsError
from bluebridge.guest.ntrdma.engine.completions import CompletionQueue
from bluebridge.guest.ntrdma.engine.regions import (
    Domain,
    FastRegion,
    Region,
    check_access,
    segments_of,
)
from bluebridge.guest.ntrdma.service import Service
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.interface import HEALTH_SECONDS
from bluebridge.guest.verbs.values import Wc

PAGE = 4096


class NtrdmaChannel:
    """Events of completion queues, in an eventfd that counts them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._events: deque[NtrdmaCq | None] = deque()
        """None wakes a waiting thread."""
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self._closed = False

    def fileno(self) -> int:
        return self._fd

    def put(self, cq: NtrdmaCq | None) -> None:
        """An event of `cq`; under the lock."""
        if not self._closed:
            self._events.append(cq)
            os.eventfd_write(self._fd, 1)

    def get_event(self, timeout: float | None = None) -> NtrdmaCq | None:
        """The next event; None when it is late, woken or closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._service.lock:
                if self._events:
                    os.eventfd_read(self._fd)
                    return self._events.popleft()
                if self._closed:
                    return None
            left = HEALTH_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            if not select.select([self._fd], [], [], min(left, HEALTH_SECONDS))[0]:
                self._service.health.check()

    def wake(self) -> None:
        with self._service.lock:
            self.put(None)

    def close(self) -> None:
        """Have waiting threads return; the descriptor lives as long as the object."""
        with self._service.lock:
            if not self._closed:
                self._closed = True
                os.eventfd_write(self._fd, 1)

    def __del__(self) -> None:
        os.close(self._fd)


class NtrdmaCq:
    """A completion queue, which has as much room as its queue pairs have entries."""

    def __init__(self, service: Service, channel: NtrdmaChannel | None) -> None:
        self.channel = channel
        self._service = service
        with service.lock:
            self.queue: CompletionQueue = service.engine.own.create_queue()
            self.cqn = self.queue.bell
            if channel is not None:
                service.notified[self.cqn] = self._notify
        self._open = True

    def poll(self, limit: int = 16) -> list[Wc]:
        service = self._service
        service.health.check()
        with service.lock:
            found = self.queue.poll(limit)
            if not found:
                if not service.progress(awaits_event=self.queue.armed):
                    return found
                found = self.queue.poll(limit)
            if service.engine.due:
                service.run()
            return found

    def req_notify(self, solicited_only: bool = False) -> None:
        if self.channel is None:
            raise VerbsError("this CQ has no completion channel")
        with self._service.lock:
            self.queue.arm(solicited_only)
            if self._service.engine.due:
                self._service.run()
            self._service.tell()
            self._service.watch()

    def destroy(self) -> None:
        with self._service.lock:
            if self._open:
                self._open = False
                self._service.notified.pop(self.cqn, None)
                self._service.engine.own.destroy_queue(self.queue)

    def _notify(self) -> None:
        if self.channel is not None:
            self.channel.put(self)


class NtrdmaMr:
    """A registered region; lkey and rkey are one."""

    def __init__(self, service: Service, domain: Domain, region: Region) -> None:
        self.lkey = self.rkey = region.key
        self._service, self._domain = service, domain
        self._open = True
        resources = service.engine.own.resources
        service.call(lambda: resources.register(domain, region), f"region {region.key:#x}")

    def close(self) -> None:
        if self._open:
            self._open = False
            resources = self._service.engine.own.resources
            self._service.call(
                lambda: resources.deregister(self._domain, self.lkey),
                f"end of region {self.lkey:#x}",
            )


class NtrdmaFastMr(FastRegion):
    """A region for REG_MR."""

    def __init__(self, service: Service, domain: Domain, index: int, max_pages: int) -> None:
        super().__init__(domain, index, max_pages)
        self._service = service
        self._open = True
        with service.lock:
            service.engine.own.resources.add_fast_region(self)

    def close(self) -> None:
        if self._open:
            self._open = False
            resources = self._service.engine.own.resources
            self._service.call(lambda: resources.remove_fast_region(self), "end of a registration")


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
