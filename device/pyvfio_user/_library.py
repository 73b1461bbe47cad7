"""Loads libvfio-user and gives types to the untyped objects of cffi."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import cffi

from .constants import HEADER_NAMES, MESSAGE_SIZES

CDEF = """
typedef struct vfu_ctx vfu_ctx_t;
struct iovec { void *iov_base; size_t iov_len; };
typedef struct vfu_dma_info {
    struct iovec iova;
    void *vaddr;
    struct iovec mapping;
    size_t page_size;
    uint32_t prot;
} vfu_dma_info_t;

typedef void vfu_log_fn_t(vfu_ctx_t *ctx, int level, const char *message);
typedef ssize_t vfu_region_access_cb_t(vfu_ctx_t *ctx, char *buf, size_t count,
                                       int64_t offset, bool is_write);
typedef int vfu_reset_cb_t(vfu_ctx_t *ctx, int type);
typedef void vfu_dma_register_cb_t(vfu_ctx_t *ctx, vfu_dma_info_t *info);
typedef void vfu_dma_unregister_cb_t(vfu_ctx_t *ctx, vfu_dma_info_t *info);
typedef void vfu_dev_irq_state_cb_t(vfu_ctx_t *ctx, uint32_t start, uint32_t count, bool mask);

vfu_ctx_t *vfu_create_ctx(int trans, const char *path, int flags, void *pvt, int dev_type);
int vfu_realize_ctx(vfu_ctx_t *ctx);
int vfu_attach_ctx(vfu_ctx_t *ctx);
int vfu_get_poll_fd(vfu_ctx_t *ctx);
int vfu_run_ctx(vfu_ctx_t *ctx);
void vfu_destroy_ctx(vfu_ctx_t *ctx);
int vfu_setup_log(vfu_ctx_t *ctx, vfu_log_fn_t *log, int level);
int vfu_pci_init(vfu_ctx_t *ctx, int pci_type, int hdr_type, int revision);
int vfu_setup_region(vfu_ctx_t *ctx, int index, size_t size, vfu_region_access_cb_t *access,
                     int flags, struct iovec *areas, uint32_t area_count, int fd,
                     uint64_t offset);
int vfu_setup_device_reset_cb(vfu_ctx_t *ctx, vfu_reset_cb_t *reset);
int vfu_setup_device_dma(vfu_ctx_t *ctx, vfu_dma_register_cb_t *dma_register,
                         vfu_dma_unregister_cb_t *dma_unregister);
int vfu_setup_device_nr_irqs(vfu_ctx_t *ctx, int type, uint32_t count);
int vfu_setup_irq_state_callback(vfu_ctx_t *ctx, int type, vfu_dev_irq_state_cb_t *callback);
int vfu_irq_trigger(vfu_ctx_t *ctx, uint32_t subindex);

void pvu_adopts(void);
"""

ADOPT = Path(__file__).with_name("adopt.h")
ADOPTS = "pvu_adopts"
"""The C function that only a library compiled with the header `ADOPT` has."""

SHIM = "libvfio-user-layout.so"

SHIM_CDEF = """
struct pvu_layout_entry { const char *name; unsigned long value; };
const struct pvu_layout_entry *pvu_layout(void);
"""

STRUCT_FIELDS = {
    "vfu_dma_info_t": ("iova", "vaddr", "mapping", "page_size", "prot"),
    "struct iovec": ("iov_base", "iov_len"),
}

SCALARS = {"vfu_reset_type_t": "int", "vfu_pci_type_t": "int", "loff_t": "int64_t", "bool": "bool"}
"""C types of the header, and the types by which the declarations above spell them."""


ENVIRONMENT = "PYVFIO_USER_LIBRARY"

Pointer = Any
"""A C pointer or C function pointer: cffi has no static types for them."""


class LibraryError(Exception):
    """Raised when libvfio-user is missing or differs from the version that this package needs."""


class Library:
    """libvfio-user, loaded and checked; make one with `load`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ffi = cffi.FFI()
        self.ffi.cdef(CDEF)
        try:
            self.calls: Any = self.ffi.dlopen(str(path))
        except OSError as error:
            raise LibraryError(f"cannot load libvfio-user: {error}") from error
        if not hasattr(self.calls, ADOPTS):
            raise LibraryError(
                f"{path} opens sockets of its own: compile it with `-include {ADOPT}`"
            )
        real = read_layout(path.with_name(SHIM))
        expected = self.expected_layout()
        wrong = [
            f"{name} is {real.get(name, 'missing')}, {value} expected"
            for name, value in expected.items()
            if real.get(name) != value
        ]
        if wrong:
            raise LibraryError(f"{path} is another libvfio-user than expected: {', '.join(wrong)}")
        # `buffer(pointer, length)` is an object of the bytes there: `[:]` copies them out or in.
        self.buffer: Callable[[Pointer, int], Any] = self.ffi.buffer
        self.string = cast(Callable[[Pointer], bytes], self.ffi.string)
        self.null: Pointer = self.ffi.NULL

    def expected_layout(self) -> dict[str, int]:
        """Return sizes, offsets and numbers of the Python declarations, by the shim's names."""
        layout = {name: int(value) for name, value in HEADER_NAMES.items()}
        for struct, fields in STRUCT_FIELDS.items():
            layout[f"sizeof({struct})"] = self.ffi.sizeof(struct)
            for field in fields:
                layout[f"offsetof({struct}.{field})"] = self.ffi.offsetof(struct, field)
        for header, declared in SCALARS.items():
            layout[f"sizeof({header})"] = self.ffi.sizeof(declared)
        layout |= {f"sizeof(struct {name})": size for name, size in MESSAGE_SIZES.items()}
        return layout

    def callback(
        self,
        signature: str,
        function: Callable[..., Any],
        on_error: Callable[..., Any],
        error: int | None = None,
    ) -> Pointer:
        """Return a C function that calls `function`; it must be kept alive while C may call it.

        When `function` raises, `on_error(type, exception, traceback)` is called and C receives
        `error`.
        """
        return self.ffi.callback(signature, function, error=error, onerror=on_error)

    def address(self, pointer: Pointer) -> int:
        """Return a C pointer as an integer."""
        return int(self.ffi.cast("uintptr_t", pointer))

    def memory(self, pointer: Pointer, length: int) -> memoryview:
        """Return a writable view of `length` bytes at `pointer`.

        The bytes must stay valid as long as the view is used.
        """
        return memoryview(self.ffi.buffer(self.ffi.cast("char *", pointer), length))

    @property
    def errno(self) -> int:
        """C's errno after the last call; if a callback sets it, C reads the new value."""
        return int(self.ffi.errno)

    @errno.setter
    def errno(self, value: int) -> None:
        self.ffi.errno = value

    def failure(self, what: str) -> OSError:
        """Return the exception for a C call that has just returned -1."""
        number = self.errno
        return OSError(number, f"{what}: {os.strerror(number)}")


def read_layout(shim: Path) -> dict[str, int]:
    """Return the header's sizes, offsets and numbers as its C compiler saw them.

    Raises `LibraryError`.
    """
    ffi = cffi.FFI()
    ffi.cdef(SHIM_CDEF)
    try:
        shim_calls: Any = ffi.dlopen(str(shim))
        entry = shim_calls.pvu_layout()
    except (OSError, AttributeError) as error:
        raise LibraryError(f"no layout check beside libvfio-user: {error}") from error
    layout: dict[str, int] = {}
    while entry.name != ffi.NULL:
        layout[cast(bytes, ffi.string(entry.name)).decode()] = int(entry.value)
        entry += 1
    return layout


@cache
def _load(path: Path) -> Library:
    return Library(path)


def load(path: str | os.PathLike[str] | None = None) -> Library:
    """Load libvfio-user from `path`, else from the environment variable PYVFIO_USER_LIBRARY.

    Raises `LibraryError` with one line when there is none, or when its layouts differ from those
    that this package was written for.
    """
    chosen = path or os.environ.get(ENVIRONMENT)
    if not chosen:
        raise LibraryError(f"where is libvfio-user.so? Pass its path or set {ENVIRONMENT}")
    return _load(Path(chosen).resolve().parent / Path(chosen).name)
