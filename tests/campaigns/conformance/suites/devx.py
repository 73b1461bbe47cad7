"""Programs that drive a ConnectX-5 past the kernel: UCX, rdma-core's tests, its own driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bluebridge.host_tools.programs.perftest import listening
from bluebridge.images.program import build
from tests.campaigns.conformance.program import FAILED, PASSED, Program, Verdict
from tests.campaigns.conformance.session import CONNECTX5_USERS, Session
from tests.campaigns.conformance.suites.verbs import TESTS, each_test, rdma_core

_HERE = Path(__file__).parent.parent
_UCX_PORT = 13337
_TRANSPORTS = {
    "rc_v": "verbs alone",
    "rc_x UCX_IB_MLX5_DEVX=n": "entries and completions of its own",
    "rc_x": "queues and keys by commands of its own, too",
    "ud_x": "datagrams",
}
_MEASURED = {"tag_bw": 4096, "ucp_put_bw": 65536, "ucp_get": 4096, "ucp_fadd": 8}
_MOST_OF_DATAGRAMS = 4096
"""Bytes: between emulated guests datagrams make 2 MB a second at most."""
_OVER_VFIO = ("test_messages", "test_event")
MLX5_TESTS = 119
"""rdma-core's tests of mlx5."""


def programs() -> list[Program]:
    """Return all of them."""
    return [*_ucx(), *_libfabric(), *_rdma_core()]


def _ucx() -> Iterator[Program]:
    """Each transport of UCX, with tags, remote memory and atomics."""
    for transport, what in _TRANSPORTS.items():
        # Debian's program wants Open MPI's libraries, but no MPI if its input is a terminal.
        program = (
            "set -- {x}; export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/pmix2/lib "
            f"UCX_IB_GID_INDEX=$2 UCX_NET_DEVICES=mlx5_0:1 UCX_TLS={transport}; "
            "< /dev/console ucx_perftest"
        )
        for test, size in _MEASURED.items():
            if transport == "ud_x" and size > _MOST_OF_DATAGRAMS:
                continue
            yield Program(
                "ucx",
                f"{test} of {transport}, {what}",
                f"{program} {{server}} -t {test} -s {size} -n 1000",
                program,
                listening(_UCX_PORT),
                expect="^Final: ",
                setups=(CONNECTX5_USERS,),
            )


def _libfabric() -> Iterator[Program]:
    words = "fi_pingpong -p verbs -e msg -S 64 -I 100"
    yield Program(
        "libfabric",
        words,
        f"{words} {{server}}",
        words,
        listening(47592),
        expect="^64 ",
        setups=(CONNECTX5_USERS,),
    )


def _rdma_core() -> Iterator[Program]:
    yield rdma_core(
        "tests of mlx5", "ONLY=test_mlx5", (CONNECTX5_USERS,), partial(each_test, count=MLX5_TESTS)
    )
    yield Program("rdma-core", "its driver over VFIO", setups=(CONNECTX5_USERS,), steps=over_vfio)


def over_vfio(session: Session) -> Sequence[Verdict]:
    """rdma-core's driver in user space drives the card of guest b, which Linux gives up.

    A library makes an IOMMU of the guest's memory: see `type1.c`.
    """
    machine = session.pair.b
    with TemporaryDirectory() as folder:
        library = Path(folder) / "type1.so"
        build([_HERE / "type1.c"], library, ["-shared", "-fPIC"])
        machine.agent.put(library.read_bytes(), f"/tmp/{library.name}")
    machine.agent.put((_HERE / "in_guest_vfio.py").read_bytes(), "/tmp/vfio.py")
    address = machine.run("lspci -Dn -d 15b3: | cut -d' ' -f1").text.strip()
    try:
        group = f"$(basename $(readlink /sys/bus/pci/devices/{address}/iommu_group))"
        machine.run(f"bluebridge-vfio && cd /dev/vfio && ln -sf noiommu-{group} {group}", 120)
        line = f"LD_PRELOAD=/tmp/type1.so python3 -W ignore /tmp/vfio.py {address} {TESTS}"
        found = [machine.agent.run(f"{line} {test} 2>&1", timeout=120) for test in _OVER_VFIO]
    finally:
        machine.run("bluebridge-mlx5 10.9.0.2/24", timeout=120)
    return [
        Verdict(PASSED, part=test)
        if ended.status == 0
        else Verdict(FAILED, ended.text.strip().replace("\n", " | ")[-400:], test)
        for test, ended in zip(_OVER_VFIO, found, strict=True)
    ]
