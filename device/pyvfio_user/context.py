"""A PCI device offered over a vfio-user socket."""

from __future__ import annotations

import errno
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from ._connection import BackDoor, Connection
from ._doorway import Doorway
from ._library import Library, Pointer, load
from .constants import (
    HEADER_TYPE_NORMAL,
    LOG_DEBUG,
    LOG_EMERGENCY,
    Irq,
    PciKind,
    Protection,
    Region,
    RegionFlag,
    Reset,
)
from .memory import DmaRegion

log = logging.getLogger(__name__)
library_log = logging.getLogger(f"{__name__.rpartition('.')[0]}.library")

Read = Callable[[int, int], bytes]
Write = Callable[[int, bytes], None]
DmaCallback = Callable[[DmaRegion], None]
ResetCallback = Callable[[Reset], None]
IrqStateCallback = Callable[[int, int, bool], None]

_MEMORY = RegionFlag.RW | RegionFlag.MEM


class Context:
    """One vfio-user device: set it up, then call `run` whenever `poll_fd` is readable.

    The socket listens from the start (mode 0600). Set-up calls are for the time before the first
    client. Everything runs in the calling thread, callbacks inside of `run` and `close`; nothing
    blocks. A client may leave at any time and another may follow: the device is then reset with
    `Reset.LOST_CONNECTION`, after its DMA regions have been unmapped.

    An exception that leaves a callback is logged with its traceback and fails that access with
    its errno (OSError) or EIO; `KeyboardInterrupt` and `SystemExit` come out of `run`.

    Raises `LibraryError` without a fitting libvfio-user, OSError when the socket cannot be
    opened or another server answers on it.
    """

    def __init__(
        self, socket_path: str | os.PathLike[str], *, library: Library | None = None
    ) -> None:
        self._library = library or load()
        self._calls = self._library.calls
        self.path = Path(socket_path)
        self._poll = select.epoll()
        self._doorway = Doorway(self.path)
        self._door: BackDoor = BackDoor(self._library)
        self._context = self._door.context
        self._poll.register(self._doorway, select.EPOLLIN)
        self._connection: Connection | None = None
        self._realized = False
        self._busy = False
        self._closed = False
        self._kept: list[Pointer] = []  # callbacks live as long as C may call them
        self._interrupt: BaseException | None = None
        self._irq_counts: dict[int, int] = {}
        self._regions: dict[int, DmaRegion] = {}
        self._on_map: DmaCallback = _ignore
        self._on_unmap: DmaCallback = _ignore
        self._set_up_log()
        # The library keeps the eventfds of the error and request interrupts in the place of
        # vector 0: a client that set them would have them fired as the device's own interrupt.
        self.set_irqs(Irq.ERROR, 0)
        self.set_irqs(Irq.REQUEST, 0)
        self._set_up_dma()

    def pci_init(self, kind: PciKind = PciKind.EXPRESS) -> None:
        """Say whether config space has 256 or 4096 bytes; it also needs a `Region.CONFIG`."""
        result = self._calls.vfu_pci_init(self._context, kind, HEADER_TYPE_NORMAL, 0)
        self._check(result, "pci_init")

    def add_region(
        self,
        index: int,
        size: int,
        read: Read | None,
        write: Write | None,
        flags: RegionFlag = _MEMORY,
    ) -> None:
        """A BAR, the ROM or config space of `size` bytes.

        `read(offset, length) -> bytes` and `write(offset, data)` see the accesses as they stood
        on the bus; without one, such accesses fail. All of config space, header and capabilities
        too, goes through its callbacks (`ConfigSpace` has ready ones).
        """
        if index == Region.CONFIG:
            flags = RegionFlag.RW | RegionFlag.ALWAYS_CALLBACK
        access = self._region_callback(index, read or _no_read, write or _no_write)
        self._check(
            self._calls.vfu_setup_region(
                self._context, index, size, access, flags, self._library.null, 0, -1, 0
            ),
            f"region {index}",
        )

    def set_irqs(self, kind: Irq, count: int) -> None:
        """How many interrupts of a kind the device has."""
        self._irq_counts[kind] = count
        self._check(self._calls.vfu_setup_device_nr_irqs(self._context, kind, count), "set_irqs")

    def set_irq_state_callback(self, kind: Irq, callback: IrqStateCallback) -> None:
        """`callback(start, count, masked)` when the client masks or unmasks vectors."""

        def changed(_: Pointer, start: int, count: int, masked: bool) -> None:
            callback(start, count, masked)

        handle = self._callback("vfu_dev_irq_state_cb_t *", changed, f"{kind.name} state", None)
        self._check(
            self._calls.vfu_setup_irq_state_callback(self._context, kind, handle), "irq state"
        )

    def set_dma_callbacks(self, on_map: DmaCallback, on_unmap: DmaCallback) -> None:
        """Hear of the client's memory: `on_map` when it is there, `on_unmap` before it goes."""
        self._on_map, self._on_unmap = on_map, on_unmap

    def set_reset_callback(self, callback: ResetCallback) -> None:
        """`callback(why)` when the device shall return to its power-on state."""

        def reset(_: Pointer, why: int) -> int:
            callback(Reset(why))
            return 0

        handle = self._callback("vfu_reset_cb_t *", reset, "reset", -1)
        self._check(self._calls.vfu_setup_device_reset_cb(self._context, handle), "reset callback")

    @property
    def poll_fd(self) -> int:
        """Readable when `run` has something to do; the same descriptor for the context's life."""
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
        """The client's memory at this moment."""
        return list(self._regions.values())

    def attach(self) -> bool:
        """Take in a client if one has introduced itself; whether one is attached now."""
        if self._connection is not None:
            return True
        self._realize()
        found = self._doorway.greeting()
        if found is None:
            return False
        client, greeting = found
        inner = self._door.introduce(client, greeting)
        if inner < 0:
            client.close()
            return False
        self._connection = Connection(
            self._library, self._context, client, inner, self._is_mapped, self._irq_count
        )
        self._poll.unregister(self._doorway)
        self._poll.register(self._connection, select.EPOLLIN)
        log.info("%s: a client has connected", self.path)
        return True

    def run(self, limit: int = 64) -> int:
        """Attach if need be and handle up to `limit` waiting messages; how many there were.

        With more waiting, `poll_fd` stays readable: several devices can share one loop fairly.
        """
        if self._busy:
            raise RuntimeError("run was called from one of its own callbacks")
        if not self.attach() or self._connection is None:
            return 0
        handled = 0
        with self._in_library():
            step = self._connection.next_message
            while handled < limit:
                done = step()
                if not done:
                    if done is None:
                        self._lose_client()
                    break
                handled += 1
                if self._interrupt is not None:
                    break
        return handled

    def trigger(self, vector: int) -> bool:
        """Raise an interrupt (INTx: vector 0); False when the client has not set that one up."""
        if self._calls.vfu_irq_trigger(self._context, vector) == 0:
            return True
        if self._library.errno in (errno.ENOENT, errno.EINVAL):
            return False
        raise self._library.failure(f"interrupt {vector}")

    def close(self) -> None:
        """Part from the client, unmap its memory and remove the socket; may be called again."""
        if self._closed:
            return
        if self._busy:
            raise RuntimeError("close was called from a callback of run")
        self._closed = True
        with self._in_library():
            self._door.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._doorway.close()
        self._poll.close()
        self._kept.clear()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _in_library(self) -> Iterator[None]:
        """Guard against re-entry, and let out what must not pass through C."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self._interrupt is not None:
            caught, self._interrupt = self._interrupt, None
            raise caught

    def _realize(self) -> None:
        if not self._realized:
            self._check(self._calls.vfu_realize_ctx(self._context), "realize")
            self._realized = True

    def _lose_client(self) -> None:
        if self._connection is not None:
            self._poll.unregister(self._connection)
            self._connection.close()
            self._connection = None
            self._poll.register(self._doorway, select.EPOLLIN)
            log.info("%s: the client has gone", self.path)

    def _check(self, result: int, what: str) -> None:
        if result < 0:
            raise self._library.failure(what)

    def _irq_count(self, kind: int) -> int:
        return self._irq_counts.get(kind, 0)

    def _is_mapped(self, address: int, size: int) -> bool:
        return any(
            region.iova < address + size and address < region.end
            for region in self._regions.values()
        )

    # What C calls -----------------------------------------------------------------------------

    def _callback(
        self, signature: str, function: Callable[..., Any], what: str, error: int | None
    ) -> Pointer:
        def failed(kind: type[BaseException], raised: BaseException, trace: TracebackType) -> None:
            if isinstance(raised, Exception):
                log.error("%s: %s failed", self.path, what, exc_info=(kind, raised, trace))
            else:
                self._interrupt = raised
            # Without it the library would take whatever errno was left over, success included.
            number = raised.errno if isinstance(raised, OSError) else None
            self._library.errno = number or errno.EIO

        handle = self._library.callback(signature, function, failed, error)
        self._kept.append(handle)
        return handle

    def _region_callback(self, index: int, read: Read, write: Write) -> Pointer:
        unpack = self._library.unpack
        move = self._library.move

        def access(_: Pointer, buffer: Pointer, count: int, offset: int, is_write: bool) -> int:
            if is_write:
                write(offset, unpack(buffer, count))
                return count
            data = read(offset, count)
            if len(data) != count:
                raise ValueError(f"{len(data)} bytes read at {offset:#x}, {count} expected")
            move(buffer, data, count)
            return count

        return self._callback("vfu_region_access_cb_t *", access, f"access to region {index}", -1)

    def _set_up_dma(self) -> None:
        on_map = self._callback("vfu_dma_register_cb_t *", self._map, "DMA map", None)
        on_unmap = self._callback("vfu_dma_unregister_cb_t *", self._unmap, "DMA unmap", None)
        self._check(self._calls.vfu_setup_device_dma(self._context, on_map, on_unmap), "dma")

    def _map(self, _: Pointer, info: Pointer) -> None:
        library = self._library
        iova = library.address(info.iova.iov_base)
        length = int(info.iova.iov_len)
        protection = Protection(info.prot)
        view = None
        # A mapping without any right would end the process at the first touch.
        if info.vaddr != library.null and protection:
            view = library.memory(info.vaddr, length)
            if not protection & Protection.WRITE:
                view = view.toreadonly()
        region = DmaRegion(iova, length, view, protection)
        self._regions[iova] = region
        self._on_map(region)

    def _unmap(self, _: Pointer, info: Pointer) -> None:
        region = self._regions.pop(self._library.address(info.iova.iov_base), None)
        if region is None:
            return
        try:
            self._on_unmap(region)
        finally:
            if region.view is not None:
                _release(region.view)

    def _set_up_log(self) -> None:
        """Pass the library's own words on, if anybody listens: they cost time per message."""
        if not library_log.isEnabledFor(logging.DEBUG):
            level, handle = LOG_EMERGENCY, self._library.null
        else:
            string = self._library.string

            def say(_: Pointer, level: int, message: Pointer) -> None:
                text = string(message).decode(errors="replace")
                library_log.debug("%s: <%d> %s", self.path, level, text)

            level = LOG_DEBUG
            handle = self._callback("vfu_log_fn_t *", say, "log", None)
        self._check(self._calls.vfu_setup_log(self._context, handle, level), "log")


def _release(view: memoryview) -> None:
    """Release a view whose memory is about to go, and complain about slices of it left behind."""
    memory = view.obj
    view.release()
    # Two references: `memory` and getrefcount's argument. More, and a slice is still alive.
    if sys.getrefcount(memory) > 2:
        log.error("views of DMA memory are still held although the memory is being unmapped")


def _ignore(_: DmaRegion) -> None:
    pass


def _no_read(offset: int, length: int) -> bytes:
    raise PermissionError(
        errno.EPERM, f"read of {length} bytes at {offset:#x} of a write-only region"
    )


def _no_write(offset: int, data: bytes) -> None:
    raise PermissionError(errno.EPERM, f"write of {data!r} at {offset:#x} of a read-only region")
