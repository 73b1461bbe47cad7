"""Programs that drive a ConnectX-5 past the kernel: UCX, MPI, rdma-core's tests and own driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bluebridge.host_tools.programs.perftest import listening
from bluebridge.images.program import build
from tests.campaigns.conformance import ssh
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
_ENDPOINTS = {"msg": "verbs", "rdm": "verbs;ofi_rxm", "dgram": "verbs"}
_LARGEST = 65536
_MPI_WAYS = {
    "UCX": "--mca pml ucx -x UCX_TLS=rc_x,self -x UCX_NET_DEVICES=mlx5_0:1 "
    "-x UCX_IB_GID_INDEX=$(set -- {x}; echo $2)",
    "libfabric": "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'",
}
_MPIRUN = (
    "cd /tmp && timeout 100 mpirun.openmpi --allow-run-as-root -n 2 -H localhost:1,{server}:1 "
    "--map-by node"
)
_PINGPONG = (
    f"python3 -m mpi4py.bench pingpong -a none -m 8 -n {_LARGEST} -l 20 -s 2 "
    "--loop-large 10 --skip-large 1"
)
# Debian's scripts, which do not run in guests, put the libraries there.
_MPI_LIBRARIES = "cd /usr/lib/x86_64-linux-gnu && ln -sf openmpi/lib/*.so.* pmix2/lib/*.so.* ."
_OVER_VFIO = ("test_messages", "test_event")
MLX5_TESTS = 119
"""rdma-core's tests of mlx5."""
_NO_METERS = "Reg C is not supported"
"""With these words `test_flow_meter` fails in place of being skipped."""


def programs() -> list[Program]:
    """Return all of them."""
    return [*_ucx(), *_libfabric(), *_open_mpi(), *_rdma_core()]


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
    """Each kind of endpoint over verbs: connected, reliable by a layer above, datagrams."""
    for kind, provider in _ENDPOINTS.items():
        words = f"fi_pingpong -p '{provider}' -e {kind} -S 64 -I 100"
        yield Program(
            "libfabric",
            words,
            f"{words} {{server}}",
            words,
            listening(47592),
            expect="^64 ",
            setups=(CONNECTX5_USERS,),
        )


def _open_mpi() -> Iterator[Program]:
    for way, options in _MPI_WAYS.items():
        steps = partial(over_mpi, options=options)
        yield Program(
            "open-mpi", f"mpi4py's pingpong over {way}", setups=(CONNECTX5_USERS,), steps=steps
        )


def over_mpi(session: Session, options: str) -> Sequence[Verdict]:
    """Guest b starts a process here and one in guest a, as `mpirun` does by ssh."""
    ssh.connect(session)
    session.run_in_both(_MPI_LIBRARIES)
    line = session.words.fill(f"{_MPIRUN} {options} {_PINGPONG} < /dev/null 2>&1", "b")
    ended = session.pair.b.agent.run(line, timeout=120)
    told = ended.text.strip()
    last = told.rpartition("\n")[2]
    if ended.status == 0 and last.split()[:1] == [str(_LARGEST)]:
        return [Verdict(PASSED, f"{last.split()[1]} MB/s with {_LARGEST} bytes")]
    return [Verdict(FAILED, told.replace("\n", " | ")[-400:])]


def _rdma_core() -> Iterator[Program]:
    judge = partial(each_test, count=MLX5_TESTS, unsupported=_NO_METERS)
    yield rdma_core("tests of mlx5", "ONLY=test_mlx5", (CONNECTX5_USERS,), judge)
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
