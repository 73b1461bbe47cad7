"""A PCI device offered over a vfio-user socket."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final

from ._callbacks import Callbacks, Complaints, Read, Write
from ._connection import Connection, LibrarySocket, interrupter
from ._files import Closer
from ._library import Library, Pointer, load
from ._listener import Listener
from ._region_filter import RegionFilter
from ._regions import BulkRegion, LineStores, MappedFile, RegisterRegion, RunCallback
from .constants import HEADER_TYPE_NORMAL, Irq, PciKind, Region, RegionFlag, Reset
from .memory import DmaCallback, DmaMap, DmaRegion

log: Final = logging.getLogger(__name__)

ResetCallback = Callable[[Reset], None]
IrqStateCallback = Callable[[int, int, bool], None]

RUN_SECONDS: Final = 0.002
"""Seconds for which `run` handles further messages after the first one."""
_MEMORY: Final = RegionFlag.RW | RegionFlag.MEM
_CONFIG: Final = RegionFlag.RW | RegionFlag.ALWAYS_CALLBACK


class Context:
    """One vfio-user device: set it up, then call `run` whenever `poll_fd` is readable.

    The socket listens from the start (mode 0600). Set-up calls are for the time before the first
    client. Everything runs in the calling thread, callbacks inside of `run` and `close`. `run`
    does not block. A client that does not read its replies is dropped once its socket is full. A
    client may leave at any time and another may follow: the device is then reset with
    `Reset.LOST_CONNECTION`, after its DMA regions have been unmapped. While a client is connected,
    others are refused with EBUSY.

    An exception that leaves a callback is logged with its traceback and fails that access with
    its errno (OSError) or EIO; `KeyboardInterrupt` and `SystemExit` come out of `run`.

    Raises `LibraryError` without a suitable libvfio-user, OSError when the socket cannot be
    opened or another server answers on it.
    """

    def __init__(
        self, socket_path: str | os.PathLike[str], *, library: Library | None = None
    ) -> None:
        self._library = library or load()
        self._calls = self._library.calls
        self.path = Path(socket_path)
        self._poll = select.epoll()
        self._closer = Closer()
        self._listener = Listener(self.path, self._closer)
        self._library_socket: LibrarySocket = LibrarySocket(self._library)
        self._context = self._library_socket.context
        self._poll.register(self._listener, select.EPOLLIN)
        self._always = os.eventfd(1, os.EFD_CLOEXEC)
        self._poll.register(self._always, 0)
        self._readable = False
        self._connection: Connection | None = None
        self._realized = False
        self._busy = False
        self._closed = False
        self._callbacks = Callbacks(self._library, str(self.path))
        self._complain = Complaints(log, str(self.path))
        self._dma = DmaMap(self._library, self._closer)
        self._irq_counts: dict[int, int] = {}
        self._windows: dict[int, BulkRegion] = {}
        self._registers: dict[int, RegisterRegion] = {}
        self._check(self._calls.vfu_setup_log(self._context, *self._callbacks.log()), "log")
        # The library stores the eventfds of the error and request interrupts in the slot of
        # vector 0: if a client set them, `trigger(0)` would signal them.
        self.set_irqs(Irq.ERROR, 0)
        self.set_irqs(Irq.REQUEST, 0)
        self._set_up_dma()

    def pci_init(self, kind: PciKind = PciKind.EXPRESS) -> None:
        """Set the size of config space, 256 or 4096 bytes; it also needs a `Region.CONFIG`."""
        result = self._calls.vfu_pci_init(self._context, kind, HEADER_TYPE_NORMAL, 0)
        self._check(result, "pci_init")

    def add_region(
        self,
        index: int,
        size: int,
        read: Read | None,
        write: Write | None,
        flags: RegionFlag = _MEMORY,
        lines: LineStores | None = None,
    ) -> None:
        """Add a BAR, the ROM or config space of `size` bytes.

        `read(offset, length) -> bytes` and `write(offset, data)` get the accesses as they were on
        the bus; without one, such accesses fail. All of config space, header and capabilities too,
        goes through its callbacks (`ConfigSpace` has ready ones). `lines` takes the posted stores
        from its `start` on.
        """
        if index == Region.CONFIG:
            flags = _CONFIG
        if flags in (_MEMORY, _CONFIG) and read and write:
            failed = self._callbacks.failing(f"access to region {index}")
            self._registers[index] = RegisterRegion(size, read, write, failed, lines)
        access = self._callbacks.region(index, read, write)
        self._check(
            self._calls.vfu_setup_region(
                self._context, index, size, access, flags, self._library.null, 0, -1, 0
            ),
            f"region {index}",
        )

    def add_window(self, index: int, size: int, read: Read, write: RunCallback) -> None:
        """Add a region, of 4 GiB if need be, whose accesses bypass libvfio-user.

        Stores call `write(offset, data, width)`: posted writes of `width` bytes each to adjacent
        addresses, in order, are one call. For an index that `add_region` has as well, this one is
        used.
        """
        what = f"access to window {index}"
        self._windows[index] = BulkRegion(
            size, self._callbacks.guarded_read(read, what), self._callbacks.guarded(write, what)
        )

    def map_file(self, index: int, file: MappedFile | None) -> None:
        """Let clients map a part of a window to a file, so that accesses to it bypass this process.

        Clients ask once, when they connect: a later call applies to the next one; None ends the
        offer. The descriptor is duplicated.
        """
        region = self._windows[index]
        if region.file is not None:
            os.close(region.file.fd)
        if file is not None:
            file = file._replace(fd=os.dup(file.fd))
        self._windows[index] = replace(region, file=file)

    def set_irqs(self, kind: Irq, count: int) -> None:
        """Set how many interrupts of a kind the device has."""
        self._irq_counts[kind] = count
        self._check(self._calls.vfu_setup_device_nr_irqs(self._context, kind, count), "set_irqs")

    def set_irq_state_callback(self, kind: Irq, callback: IrqStateCallback) -> None:
        """Call `callback(start, count, masked)` when the client masks or unmasks vectors."""

        def changed(_: Pointer, start: int, count: int, masked: bool) -> None:
            callback(start, count, masked)

        handle = self._callbacks.make("vfu_dev_irq_state_cb_t *", changed, f"{kind.name} state")
        self._check(
            self._calls.vfu_setup_irq_state_callback(self._context, kind, handle), "irq state"
        )

    def set_dma_callbacks(self, on_map: DmaCallback, on_unmap: DmaCallback) -> None:
        """Call `on_map` after a region was mapped, `on_unmap` before it is unmapped."""
        self._dma.on_map, self._dma.on_unmap = on_map, on_unmap

    def set_reset_callback(self, callback: ResetCallback) -> None:
        """Call `callback(why)` when the device has to return to its power-on state."""

        def reset(_: Pointer, why: int) -> int:
            callback(Reset(why))
            return 0

        handle = self._callbacks.make("vfu_reset_cb_t *", reset, "reset", -1)
        self._check(self._calls.vfu_setup_device_reset_cb(self._context, handle), "reset callback")

    @property
    def poll_fd(self) -> int:
        """A descriptor that is readable when `run` has work to do.

        It stays the same for the life of the context.
        """
        return self._poll.fileno()

    @property
    def attached(self) -> bool:
        """Whether a client is connected."""
        return self._connection is not None

    @property
    def detached(self) -> bool:
        """Whether no client is connected."""
        return self._connection is None

    @property
    def dma_regions(self) -> list[DmaRegion]:
        """The client's memory regions that are mapped at this moment."""
        return self._dma.regions()

    def attach(self) -> bool:
        """Attach a client whose VERSION message has arrived; return whether one is attached now."""
        if self._connection is not None:
            return True
        self._realize()
        found = self._listener.next_client()
        if found is None:
            return False
        client, first_message = found
        self._closer.leave()
        private = self._introduce(client, first_message)
        if private is None:
            self._closer.hang_up(client)
            return False
        messages = RegionFilter(
            client,
            self._dma.overlaps,
            self._irq_count,
            self._complain,
            self._closer,
            self._windows,
            self._registers,
        )
        messages.on_file = self._dma.offer
        self._connection = Connection(
            self._library, self._context, client, private, messages, self._closer
        )
        self._poll.register(self._connection, select.EPOLLIN)
        log.info("%s: a client has connected", self.path)
        return True

    def _introduce(self, client: socket.socket, first_message: bytes) -> socket.socket | None:
        """Return a new client's private connection to the library; None when there can be none."""
        try:
            return self._library_socket.attach(client, first_message)
        except OSError as error:
            self._complain(f"turned a client away: {error.strerror}; see `ulimit -n`")
            return None

    def run(self, limit: int = 64) -> int:
        """Attach a client if need be; handle up to `limit` waiting messages, return their number.

        Fewer are handled when they take long, so that other devices of the same loop are served.
        Accesses to BARs that wait together may count as one. While more messages wait, `poll_fd`
        stays readable: several devices can share one loop fairly.
        """
        if self._busy:
            raise RuntimeError("run was called from one of its own callbacks")
        if self._connection is None and not self.attach():
            return 0
        self._busy = True
        try:
            handled = self._drain(limit)
        finally:
            self._busy = False
            self._dma.close_unmapped()
            self._stay_readable(self._connection is not None and self._connection.filter.waiting)
        self._callbacks.raise_interrupt()
        if not handled and self._connection is not None:
            self._listener.refuse(self._connection.filter.connected)
        return handled

    def _stay_readable(self, waiting: bool) -> None:
        """Keep `poll_fd` readable while messages wait that have been received."""
        if waiting != self._readable:
            self._readable = waiting
            self._poll.modify(self._always, select.EPOLLIN if waiting else 0)

    def _drain(self, limit: int) -> int:
        connection, handled, until = self._connection, 0, 0.0
        while connection is not None and handled < limit:
            if handled:
                now = monotonic()
                until = until or now + RUN_SECONDS
                if now >= until:
                    break
            done = connection.next_message()
            if not done:
                if done is None:
                    self._lose_client()
                break
            handled += 1
            # Nothing more was seen: the caller's poll is cheaper than another peek.
            if not connection.filter.more or self._callbacks.interrupt is not None:
                break
        return handled

    def trigger(self, vector: int) -> bool:
        """Raise an interrupt (INTx: vector 0); False when the client has not set that one up."""
        connection = self._connection
        if connection is None or connection.blocked:
            return False
        interrupter.begin()
        try:
            if self._calls.vfu_irq_trigger(self._context, vector) == 0:
                return True
        finally:
            interrupter.end()
        error = self._library.errno
        if error in (errno.ENOENT, errno.EINVAL):
            return False
        if error == errno.EINTR:
            connection.condemn()
        elif error != errno.EAGAIN:  # full: the client has not taken the ones before
            raise OSError(error, f"interrupt {vector}: {os.strerror(error)}")
        return True

    def write_memory(self, address: int, data: bytes) -> bool:
        """Ask the client to write to its own bus; False when no client is connected.

        For addresses without shared memory, such as those of message-signalled interrupts whose
        address and data the guest has chosen. The reply is not awaited: a refusal is logged when
        it arrives. Needs Bus Master Enable.
        Raises BlockingIOError while the client does not read, ValueError for more than
        `LARGEST_MEMORY_WRITE` bytes.
        """
        return self._connection is not None and self._connection.write_memory(address, data)

    def close(self) -> None:
        """Disconnect the client, unmap its memory and remove the socket; may be called again."""
        if self._closed:
            return
        if self._busy:
            raise RuntimeError("close was called from a callback of run")
        self._closed = True
        with self._in_library():
            self._library_socket.close()
        self._dma.close_unmapped()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._listener.close()
        self._poll.close()
        os.close(self._always)
        for index in self._windows:
            self.map_file(index, None)
        interrupter.rest()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _in_library(self) -> Iterator[None]:
        """Refuse re-entry; afterwards raise what a callback raised besides `Exception`."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        self._callbacks.raise_interrupt()

    def _realize(self) -> None:
        if not self._realized:
            self._check(self._calls.vfu_realize_ctx(self._context), "realize")
            self._realized = True

    def _lose_client(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._poll.unregister(connection)
            connection.close()
            log.info("%s: the client has gone", self.path)

    def _check(self, result: int, what: str) -> None:
        if result < 0:
            raise self._library.failure(what)

    def _irq_count(self, kind: int) -> int:
        return self._irq_counts.get(kind, 0)

    def _set_up_dma(self) -> None:
        make = self._callbacks.make
        on_map = make("vfu_dma_register_cb_t *", self._dma.map, "DMA map")
        on_unmap = make("vfu_dma_unregister_cb_t *", self._dma.unmap, "DMA unmap")
        self._check(self._calls.vfu_setup_device_dma(self._context, on_map, on_unmap), "dma")
