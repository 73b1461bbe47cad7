"""What the guest's root promises: the stock RDMA programs start, modules load, HCAs come up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from host_tools.lab import LabConfig, Pair
from host_tools.vm import Vm
from images.recipes.guest_contents import MODULES, TESTS
from tests.vm.conftest import BOOT_SECONDS

pytestmark = pytest.mark.timeout(2 * BOOT_SECONDS)
PROGRAMS = (
    "cmtime devlink ethtool fio ib_atomic_bw ib_read_lat ib_send_bw ib_write_bw ibnetdiscover "
    "ibstat ibv_devinfo ibv_rc_pingpong ibv_srq_pingpong ip iperf3 lspci mckey nvme opensm "
    "perfquery ping qperf rcopy rdma riostream rping rstream saquery smpquery tcpdump ucmatose "
    "udaddy"
)
VENDORS = tuple(f"tests.test_{vendor}" for vendor in ("mlx5", "efa", "cuda"))
STARTED = (
    "fio --version",
    "iperf3 --version",
    "nvme version",
    "tcpdump --version",
    "ib_write_bw --version",
    "opensm --version",
    "qperf --help",
    "rdma -V",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair whose HCAs no driver has yet."""
    with Pair(LabConfig(log=tmp_path_factory.mktemp("logs"), vfio=False)) as pair:
        yield pair


def test_programs_are_there_and_find_their_libraries(lab: Pair) -> None:
    agent = lab.a.agent
    absent = agent.run(f"for p in {PROGRAMS}; do which $p >/dev/null || echo $p; done")
    assert absent.text == ""
    for command in STARTED:
        done = agent.run(command, timeout=60)
        assert b"shared libraries" not in done.stdout + done.stderr
        assert done.stdout + done.stderr, command
    assert agent.run("ulimit -l", check=True).text == "unlimited"


def test_every_module_of_the_image_can_be_loaded(lab: Pair) -> None:
    """Asked for as modprobe would load it, with what it depends on; nothing is loaded here."""
    for name in MODULES:
        lab.a.agent.run(["modprobe", "--dry-run", name], check=True)


def test_the_test_suite_of_rdma_core_can_be_listed(lab: Pair) -> None:
    """181 generic tests, and those of other vendors' devices; listing them imports pyverbs."""
    run = f"/{TESTS}/run_tests.py"
    done = lab.a.agent.run(["python3", run, "--list-tests"], timeout=120)
    names = [line for line in done.text.splitlines() if line.startswith("tests.")]
    generic = [name for name in names if not name.startswith(VENDORS)]
    assert len(generic) == 181, done


def test_the_kernel_takes_the_hcas_and_programs_find_them(lab: Pair) -> None:
    lab.both(_hand_over)
    pings = lab.a.agent.run("ping -c 3 -i 0.2 -w 30 10.9.0.2", timeout=60, check=True)
    assert " 3 received" in pings.text
    for machine in lab.machines:
        agent = machine.agent
        assert "PORT_ACTIVE" in agent.run("ibv_devinfo", check=True).text
        assert "state ACTIVE" in agent.run("rdma link", check=True).text
        devices = agent.run("ls /dev/infiniband", check=True).text.split()
        assert {"rdma_cm", "umad0", "uverbs0"} <= set(devices)


def _hand_over(machine: Vm) -> None:
    number = 1 + "ab".index(machine.name)
    machine.agent.run(["bluebridge-mlx4", f"10.9.0.{number}/24"], timeout=120, check=True)


def test_the_hand_over_says_what_is_wrong(lab: Pair) -> None:
    refused = lab.a.agent.run(["bluebridge-mlx4", "10.9.0.999/24"], timeout=60)
    assert refused.status == 1
    assert b"takes no 10.9.0.999/24" in refused.stderr
