// SPDX-License-Identifier: GPL-2.0
/*
 * Lets mmiotrace see mappings that do not begin at a page boundary.
 *
 * The tracer looks for the probe of an access by the first byte of its page (arch/x86/mm/kmmio.c:
 * kmmio_handler), while a probe begins where its mapping does: what is mapped at 0x80680 is armed
 * and stepped over, but never recorded. While this module is loaded the tracer is told of whole
 * pages, both when something is mapped and when it is unmapped; nothing else changes.
 */
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>

/* mmiotrace_ioremap(offset, size, addr): down to the page, by as much as the address is above it */
static int mapping(struct kprobe *probe, struct pt_regs *regs)
{
	unsigned long above = offset_in_page(regs->dx);

	regs->di -= above;
	regs->si += above;
	regs->dx -= above;
	return 0;
}

/* mmiotrace_iounmap(addr) */
static int unmapping(struct kprobe *probe, struct pt_regs *regs)
{
	regs->di &= PAGE_MASK;
	return 0;
}

static struct kprobe map_probe = {
	.symbol_name = "mmiotrace_ioremap",
	.pre_handler = mapping,
};
static struct kprobe unmap_probe = {
	.symbol_name = "mmiotrace_iounmap",
	.pre_handler = unmapping,
};
static struct kprobe *probes[] = { &map_probe, &unmap_probe };

static int __init whole_pages_init(void)
{
	return register_kprobes(probes, ARRAY_SIZE(probes));
}

static void __exit whole_pages_exit(void)
{
	unregister_kprobes(probes, ARRAY_SIZE(probes));
}

module_init(whole_pages_init);
module_exit(whole_pages_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("mmiotrace sees mappings that do not begin at a page boundary");
