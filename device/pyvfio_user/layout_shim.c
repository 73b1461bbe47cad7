/*
 * What the C compiler made of libvfio-user's public headers, for the Python binding to compare
 * with its own declarations when it loads the library. Compiled against the very headers the
 * library was built from; it holds no code of the library itself.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "libvfio-user.h"
#include "vfio-user.h"

struct pvu_layout_entry {
    const char *name;
    unsigned long value;
};

#define SIZE(type) { "sizeof(" #type ")", sizeof(type) }
#define OFFSET(type, member) { "offsetof(" #type "." #member ")", offsetof(type, member) }
#define VALUE(constant) { #constant, (unsigned long)(constant) }

static const struct pvu_layout_entry layout[] = {
    /* Memory the client shares. */
    SIZE(struct iovec),
    OFFSET(struct iovec, iov_base),
    OFFSET(struct iovec, iov_len),
    SIZE(vfu_dma_info_t),
    OFFSET(vfu_dma_info_t, iova),
    OFFSET(vfu_dma_info_t, vaddr),
    OFFSET(vfu_dma_info_t, mapping),
    OFFSET(vfu_dma_info_t, page_size),
    OFFSET(vfu_dma_info_t, prot),

    /* Types that the declarations for cffi spell differently. */
    SIZE(vfu_reset_type_t),
    SIZE(vfu_pci_type_t),
    SIZE(loff_t),
    SIZE(bool),

    /* Messages of the protocol. */
    SIZE(struct vfio_user_header),
    SIZE(struct vfio_user_dma_map),
    SIZE(struct vfio_user_dma_unmap),
    SIZE(struct vfio_user_region_access),
    SIZE(struct vfio_irq_set),

    /* Constants. */
    VALUE(LIBVFIO_USER_FLAG_ATTACH_NB),
    VALUE(VFU_TRANS_SOCK),
    VALUE(VFU_DEV_TYPE_PCI),
    VALUE(VFU_REGION_FLAG_READ),
    VALUE(VFU_REGION_FLAG_WRITE),
    VALUE(VFU_REGION_FLAG_MEM),
    VALUE(VFU_REGION_FLAG_ALWAYS_CB),
    VALUE(VFU_RESET_DEVICE),
    VALUE(VFU_RESET_LOST_CONN),
    VALUE(VFU_RESET_PCI_FLR),
    VALUE(VFU_DEV_INTX_IRQ),
    VALUE(VFU_DEV_MSI_IRQ),
    VALUE(VFU_DEV_MSIX_IRQ),
    VALUE(VFU_DEV_ERR_IRQ),
    VALUE(VFU_DEV_REQ_IRQ),
    VALUE(VFU_PCI_DEV_BAR0_REGION_IDX),
    VALUE(VFU_PCI_DEV_BAR1_REGION_IDX),
    VALUE(VFU_PCI_DEV_BAR2_REGION_IDX),
    VALUE(VFU_PCI_DEV_BAR3_REGION_IDX),
    VALUE(VFU_PCI_DEV_BAR4_REGION_IDX),
    VALUE(VFU_PCI_DEV_BAR5_REGION_IDX),
    VALUE(VFU_PCI_DEV_ROM_REGION_IDX),
    VALUE(VFU_PCI_DEV_CFG_REGION_IDX),
    VALUE(VFU_PCI_DEV_MIGR_REGION_IDX),
    VALUE(VFU_PCI_TYPE_CONVENTIONAL),
    VALUE(VFU_PCI_TYPE_EXPRESS),

    { NULL, 0 },
};

/* The table above, ended by an entry whose name is NULL. */
__attribute__((visibility("default"))) const struct pvu_layout_entry *pvu_layout(void);

const struct pvu_layout_entry *pvu_layout(void)
{
    return layout;
}
