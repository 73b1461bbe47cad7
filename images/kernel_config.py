"""The configuration of a small kernel that is a guest: the text of `bluebridge kernel config`."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.images.kernel_needs import BOOT, DRIVERS

AS_MODULES = (
    # Not built in: a driver that is there when the device is plugged in takes it at once
    *("MLX4_CORE", "MLX4_EN", "MLX4_INFINIBAND", "MLX5_CORE", "MLX5_INFINIBAND"),
    *("INFINIBAND_IPOIB", "RDMA_RXE", "RDMA_SIW"),
    *("INFINIBAND_RTRS_CLIENT", "INFINIBAND_RTRS_SERVER", "BLK_DEV_RNBD_CLIENT"),
    *("BLK_DEV_RNBD_SERVER", "NTB", "NTB_INTEL", "NTB_AMD", "NTB_IDT", "NTB_EPF", "NTB_TRANSPORT"),
    *("NTB_PINGPONG", "NTB_TOOL", "NTB_PERF", "NTB_NETDEV", "PCI_SW_SWITCHTEC", "NTB_SWITCHTEC"),
    *("INTEL_IOATDMA", "DMATEST", "TUN", "VLAN_8021Q", "BLK_DEV_RAM", "BLK_DEV_NBD"),
    *("BLK_DEV_LOOP", "VIRTIO_BLK", "DUMMY"),
)
BUILT_IN = (
    *(need.symbol for need in (*BOOT, *DRIVERS) if need.symbol not in AS_MODULES),
    # Processor, memory, time
    *("64BIT", "SMP", "HYPERVISOR_GUEST", "PARAVIRT", "PVH", "KVM_GUEST", "X86_X2APIC"),
    *("HIGH_RES_TIMERS", "NO_HZ_IDLE", "PREEMPT_VOLUNTARY", "SHMEM", "COMPACTION"),
    # What programs ask of a kernel
    *("MULTIUSER", "PRINTK", "BUG", "FUTEX", "SIGNALFD", "TIMERFD", "EVENTFD", "AIO"),
    *("POSIX_TIMERS", "FILE_LOCKING", "INOTIFY_USER", "FHANDLE", "ADVISE_SYSCALLS", "MEMBARRIER"),
    *("SYSVIPC", "POSIX_MQUEUE", "KALLSYMS", "EXPERT", "MODULES", "MODULE_UNLOAD"),
    *("NAMESPACES", "NET_NS", "IKCONFIG", "IKCONFIG_PROC", "DEBUG_FS", "PROC_SYSCTL"),
    *("PROC_PAGE_MONITOR", "PROC_KCORE", "MEMFD_CREATE", "FUSE_FS", "BLOCK", "BLK_DEV"),
    # The machine: PCIe with hot plug, console, the agent's ports
    *("ACPI", "PCI_MMCONFIG", "PCIEPORTBUS", "HOTPLUG_PCI", "TTY", "UNIX98_PTYS", "SERIAL_8250"),
    *("VIRTIO_MENU", "MAGIC_SYSRQ"),
    # Networks and RDMA
    *("IPV6", "PACKET", "NETDEVICES", "NET_CORE", "ETHERNET", "NET_VENDOR_MELLANOX"),
    *("VIRTIO_NET", "INFINIBAND", "INET_DIAG", "INET_TCP_DIAG", "PTP_1588_CLOCK"),
    *("MLX5_EN_RXNFC", "MLX5_EN_ARFS", "RFS_ACCEL"),
    # The Python driver's way to a function
    *("VFIO_GROUP", "VFIO_CONTAINER", "DMADEVICES"),
    # The root of a guest that virtme-ng starts
    *("NETWORK_FILESYSTEMS", "NET_9P", "NET_9P_VIRTIO", "9P_FS", "OVERLAY_FS"),
    # A failure is told: stacks with names, tasks that hang, processors that do not answer
    *("DEBUG_KERNEL", "STACKTRACE", "FRAME_POINTER", "UNWINDER_FRAME_POINTER"),
    *("DETECT_HUNG_TASK", "SOFTLOCKUP_DETECTOR", "DEBUG_BUGVERBOSE", "PRINTK_TIME"),
    # Lines of the source for those stacks, and no more than that
    *("DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT", "DEBUG_INFO_REDUCED"),
    # Fast to build
    *("KERNEL_GZIP", "CC_OPTIMIZE_FOR_PERFORMANCE", "SLUB_DEBUG"),
)
"""The needs of guests, and what else such a kernel has."""
DEBUG = (
    *("KASAN", "KASAN_GENERIC", "KASAN_OUTLINE", "KASAN_VMALLOC", "PROVE_LOCKING"),
    *("DEBUG_KMEMLEAK", "DEBUG_OBJECTS", "DEBUG_OBJECTS_FREE", "DEBUG_OBJECTS_TIMERS"),
    *("DEBUG_OBJECTS_WORK", "DEBUG_OBJECTS_RCU_HEAD", "DEBUG_OBJECTS_PERCPU_COUNTER", "KCOV"),
    *("DEBUG_ATOMIC_SLEEP", "DEBUG_LIST", "KCOV_ENABLE_COMPARISONS"),
)
"""What `--debug` adds; none of it fits into the time of a usual boot."""
VALUES = {"NR_CPUS": "64", "LOG_BUF_SHIFT": "18", "DEFAULT_HUNG_TASK_TIMEOUT": "120"}
OFF = ("MITIGATIONS", "CPU_MITIGATIONS", "SPECULATION_MITIGATIONS", "RANDOMIZE_BASE", "VT", "WLAN")
_HEAD = (
    "# A small kernel for guests of bluebridge. In a kernel's source:",
    "#   make KCONFIG_ALLCONFIG=THIS_FILE allnoconfig && make -j$(nproc) bzImage modules",
    "# `bluebridge kernel build SOURCE` does both. Added to a configuration of your own, with",
    "# `make olddefconfig` after it, these lines make that kernel a guest as well.",
)


def text(debug: bool) -> str:
    """Return the lines of a `.config`; with `debug`, those of a kernel that checks itself."""
    return "\n".join((*_HEAD, *_lines(debug))) + "\n"


def wanted(debug: bool) -> tuple[str, ...]:
    """Return the symbols that a kernel gets, built in or as modules."""
    return (*BUILT_IN, *AS_MODULES, *(DEBUG if debug else ()))


def _lines(debug: bool) -> Iterator[str]:
    for symbol in (*BUILT_IN, *(DEBUG if debug else ())):
        yield f"CONFIG_{symbol}=y"
    for symbol in AS_MODULES:
        yield f"CONFIG_{symbol}=m"
    for symbol, value in VALUES.items():
        yield f"CONFIG_{symbol}={value}"
    for symbol in OFF:
        yield f"# CONFIG_{symbol} is not set"
