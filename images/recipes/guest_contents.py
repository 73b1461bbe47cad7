"""Contents of the guest's root: packages, kernel modules, and paths that are removed."""

from __future__ import annotations

REQUEST = (
    "install",
    # The system
    *("busybox-static", "bash", "dash", "libc-bin", "kmod", "iproute2", "pciutils", "ethtool"),
    *("tcpdump", "iputils-ping", "python3-minimal", "libpython3-stdlib"),
    # RDMA: libraries, tools, tests
    *("rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "infiniband-diags"),
    *("opensm", "perftest", "qperf", "python3-pyverbs"),
    # TCP and storage traffic
    "iperf3",
    "fio",
    "nvme-cli",
    "e2fsprogs",
)
UNWANTED = (
    *("adduser", "base-files", "base-passwd", "debianutils", "dmsetup", "init-system-helpers"),
    *("libpam-modules", "libpam-modules-bin", "libperl5.40", "libsemanage-common"),
    *("libsystemd-shared", "login.defs", "mount", "passwd", "perl", "perl-base"),
    *("perl-modules-5.40", "systemd", "udev", "uuid-runtime"),
)
"""Dependencies that only maintainer scripts and services need, none of which runs here."""

OPENED_BY_NAME = ("libgcc_s.so.1", "libnss_dns.so.2", "libnss_files.so.2", "libmlx4.so.1")
"""Libraries that glibc opens itself, to end a thread and to look up names; libmlx4 under the name
that programs are linked to, besides the one under which libibverbs opens it."""

MODULES = (
    # The ConnectX-3 and the RDMA stack over it
    *("mlx4_core", "mlx4_en", "mlx4_ib", "ib_core", "ib_uverbs", "ib_umad", "ib_cm", "iw_cm"),
    *("rdma_cm", "rdma_ucm", "ib_ipoib", "rdma_rxe"),
    # For the project's own driver
    "vfio",
    "vfio_pci",
    "vfio_iommu_type1",
    # Networks
    *("virtio_net", "virtio_balloon", "8021q", "macvlan", "bonding", "dummy", "tun", "inet_diag"),
    "tcp_diag",
    # Storage over RDMA and block devices
    *("nvme_rdma", "nvmet", "nvmet_rdma", "virtio_blk", "null_blk", "brd", "loop", "nbd", "ext4"),
    # Checksums that rdma_rxe and NVMe request from the crypto layer by name
    "crc32_generic",
    "crc32c_generic",
    "crc32c_intel",
)
FOLDERS = (
    *("dev", "proc", "sys", "tmp", "run", "root", "mnt", "opt", "etc", "var/cache/opensm"),
    *("var/lib", "var/log", "lib/modules"),
)
# tcpdump switches to its own account and does not run without one.
PASSWD = """\
root::0:0:root:/root:/bin/sh
tcpdump:x:100:100::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
"""
GROUP = """\
root:x:0:
tcpdump:x:100:
nogroup:x:65534:
"""
TESTS = "usr/share/doc/rdma-core/tests"
"""rdma-core's own tests, which its package has under documentation."""

REMOVED = (
    *("etc/apparmor.d", "etc/apt", "etc/init.d", "etc/logrotate.d", "etc/pam.d", "etc/rc?.d"),
    *("etc/security", "etc/selinux", "etc/systemd", "etc/tmpfiles.d", "etc/udev", "etc/ufw"),
    *("usr/bin/perl*", "usr/bin/pydoc*", "usr/bin/pygettext*", "usr/lib/locale"),
    *("usr/lib/python3.*/config-*", "usr/lib/python3.*/encodings/cp[18]*"),
    *("usr/lib/python3.*/encodings/euc_*", "usr/lib/python3.*/encodings/iso2022*"),
    "usr/lib/python3.*/encodings/iso8859_[2-9]*",
    *("usr/lib/python3.*/encodings/iso8859_1[0-6]*", "usr/lib/python3.*/encodings/mac_*"),
    *("usr/lib/python3.*/ensurepip", "usr/lib/python3.*/idlelib"),
    *("usr/lib/python3.*/lib-dynload/_*db*", "usr/lib/python3.*/lib-dynload/_codecs_*"),
    *("usr/lib/python3.*/lib-dynload/_sqlite3*", "usr/lib/python3.*/lib-dynload/_test*"),
    *("usr/lib/python3.*/lib-dynload/_xxtest*", "usr/lib/python3.*/pydoc_data"),
    *("usr/lib/python3.*/sqlite3", "usr/lib/python3.*/test", "usr/lib/python3.*/tkinter"),
    *("usr/lib/python3.*/turtle.py", "usr/lib/python3.*/turtledemo", "usr/lib/python3.*/wsgiref"),
    *("usr/lib/python3.*/xmlrpc", "usr/lib/systemd", "usr/lib/tmpfiles.d", "usr/lib/udev"),
    *("usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/glusterfs"),
    *("usr/lib/x86_64-linux-gnu/perl*", "usr/lib/x86_64-linux-gnu/security", "usr/sbin/ldconfig"),
    *("usr/share/applications", "usr/share/bash-completion", "usr/share/bug"),
    *("usr/share/debconf", "usr/share/doc", "usr/share/doc-base", "usr/share/fio"),
    *("usr/share/gcc", "usr/share/info", "usr/share/initramfs-tools", "usr/share/lintian"),
    *("usr/share/locale", "usr/share/man", "usr/share/perl*", "usr/share/pixmaps"),
    *("usr/share/polkit-1", "usr/share/python3", "usr/share/zoneinfo", "usr/share/zsh"),
    *("var/cache", "var/lib", "var/log"),
)
