"""The part of libvfio-user's C interface that this package calls, for cffi's ABI mode.

ABI mode compiles nothing, so this text is the only description of the structures. `SHIM` names a
small library that is compiled against the real header and reports its layouts; they are compared
with `Library.expected_layout` when the library is loaded.
"""

from __future__ import annotations

from pathlib import Path

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
