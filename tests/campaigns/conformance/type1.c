/* Preloaded into a program that wants VFIO with an IOMMU of type 1, in a guest without one.
 *
 * A device's addresses are those of physical pages then. The program is told the addresses of pages
 * that this library holds, and whatever it maps to some of them is moved into these pages, under
 * the program's own addresses. Each page can be mapped once. Needs root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define CHUNK (2UL << 20)
#define CHUNKS 24
#define MAPPINGS 4096
#define POOL (CHUNK * CHUNKS)

static char *pool;
static uint64_t physical[CHUNKS];
static struct mapping { uint64_t iova, size; char *place; } mapped[MAPPINGS];

static void *anonymous(uint64_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void prepare(void)
{
	char *raw = anonymous(POOL + CHUNK);
	int map = open("/proc/self/pagemap", O_RDONLY);

	pool = (char *)(((uintptr_t)raw + CHUNK - 1) & ~(CHUNK - 1));
	madvise(pool, POOL, MADV_HUGEPAGE);
	mlock(pool, POOL);
	for (int chunk = 0; chunk < CHUNKS; chunk++) {
		uint64_t first = 0, word;
		int together = 1;

		memset(pool + chunk * CHUNK, 0, CHUNK);
		for (unsigned long at = 0; at < CHUNK; at += PAGE) {
			pread(map, &word, 8, (uintptr_t)(pool + chunk * CHUNK + at) / PAGE * 8);
			word = (word & ((1ULL << 55) - 1)) * PAGE;
			if (!at)
				first = word;
			else if (word != first + at)
				together = 0;
		}
		physical[chunk] = together ? first : 0;
	}
	close(map);
}

static int by_address(const void *a, const void *b)
{
	const struct vfio_iova_range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static int information(struct vfio_iommu_type1_info *info)
{
	struct vfio_iommu_type1_info_cap_iova_range *cap = (void *)(info + 1);
	uint32_t size = sizeof(*info) + sizeof(*cap) + CHUNKS * sizeof(cap->iova_ranges[0]);
	int given = info->argsz >= size, count = 0;

	if (!pool)
		prepare();
	info->flags = VFIO_IOMMU_INFO_PGSIZES | (given ? VFIO_IOMMU_INFO_CAPS : 0);
	info->iova_pgsizes = PAGE;
	info->argsz = size;
	if (!given)
		return 0;
	info->cap_offset = sizeof(*info);
	memset(cap, 0, sizeof(*cap));
	cap->header.id = VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE;
	cap->header.version = 1;
	for (int chunk = 0; chunk < CHUNKS; chunk++) {
		uint64_t start = physical[chunk];

		if (start)
			cap->iova_ranges[count++] = (struct vfio_iova_range){ start, start + CHUNK - 1 };
	}
	qsort(cap->iova_ranges, count, sizeof(cap->iova_ranges[0]), by_address);
	cap->nr_iovas = count;
	return 0;
}

static char *place_of(uint64_t iova)
{
	for (int chunk = 0; chunk < CHUNKS; chunk++)
		if (physical[chunk] && iova - physical[chunk] < CHUNK)
			return pool + chunk * CHUNK + (iova - physical[chunk]);
	return NULL;
}

/* Move pages to another address, in place of those that are there. */
static int move(char *from, char *to, uint64_t size)
{
	return mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED;
}

static int map(struct vfio_iommu_type1_dma_map *wanted)
{
	char *to = (char *)(uintptr_t)wanted->vaddr;

	for (uint64_t done = 0; done < wanted->size;) {
		uint64_t iova = wanted->iova + done, part = CHUNK - (iova & (CHUNK - 1));
		char *from = place_of(iova);
		unsigned slot = 0;

		if (part > wanted->size - done)
			part = wanted->size - done;
		while (slot < MAPPINGS && mapped[slot].size)
			slot++;
		if (!from || slot == MAPPINGS) {
			errno = ENOMEM;
			return -1;
		}
		memcpy(from, to + done, part);
		if (move(from, to + done, part))
			return -1;
		mapped[slot] = (struct mapping){ iova, part, to + done };
		done += part;
	}
	return 0;
}

static int unmap(struct vfio_iommu_type1_dma_unmap *wanted)
{
	for (unsigned slot = 0; slot < MAPPINGS; slot++) {
		struct mapping *it = &mapped[slot];
		char *fresh;

		if (!it->size || it->iova < wanted->iova || it->iova >= wanted->iova + wanted->size)
			continue;
		fresh = anonymous(it->size);
		memcpy(fresh, it->place, it->size);
		move(it->place, place_of(it->iova), it->size);
		move(fresh, it->place, it->size);
		it->size = 0;
	}
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list words;
	void *word;

	va_start(words, request);
	word = va_arg(words, void *);
	va_end(words);
	switch (request) {
	case VFIO_CHECK_EXTENSION:
		if ((unsigned long)word == VFIO_TYPE1v2_IOMMU)
			return 1;
		break;
	case VFIO_SET_IOMMU:
		if ((unsigned long)word == VFIO_TYPE1v2_IOMMU)
			word = (void *)VFIO_NOIOMMU_IOMMU;
		break;
	case VFIO_IOMMU_GET_INFO:
		return information(word);
	case VFIO_IOMMU_MAP_DMA:
		return map(word);
	case VFIO_IOMMU_UNMAP_DMA:
		return unmap(word);
	}
	return syscall(SYS_ioctl, fd, request, word);
}
