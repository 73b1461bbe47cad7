"""Tests of what the guest's root promises: the stock RDMA programs start, modules can be loaded."""

from __future__ import annotations

import pytest

from bluebridge.host_tools.machine.vm import Vm
from bluebridge.images.recipes.guest_contents import MODULES, TESTS

pytestmark = [pytest.mark.devices("hca", vfio=False), pytest.mark.shared_pair]
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


@pytest.mark.brief
def test_programs_are_there_and_find_their_libraries(guest_a: Vm) -> None:
    agent = guest_a.agent
    absent = agent.run(f"for p in {PROGRAMS}; do which $p >/dev/null || echo $p; done")
    assert absent.text == ""
    for command in STARTED:
        done = agent.run(command, timeout=60)
        assert b"shared libraries" not in done.stdout + done.stderr
        assert done.stdout + done.stderr, command
    assert guest_a.run("ulimit -l").text == "unlimited"


def test_python_at_a_terminal_begins_without_a_warning(guest_a: Vm) -> None:
    begin = "import pty; pty.spawn(['python3'])"
    said = guest_a.run(f"echo 'exit()' | python3 -c \"{begin}\"", timeout=120).text
    assert ">>> exit()" in said and "warning" not in said


def test_what_programs_besides_python_expect_of_a_system(guest_a: Vm) -> None:
    """DPDK refuses hugepages below a folder that all may write to; kernel selftests need bash."""
    assert guest_a.run("stat -c %a /").text.strip() == "755"
    assert (
        guest_a.run(["bash", "-c", "for ((n = 0; n < 3; n++)); do printf $n; done"]).text == "012"
    )
    loaded = "import ctypes; ctypes.CDLL('libmlx4.so.1').mlx4dv_init_obj"
    guest_a.run(["python3", "-c", loaded])


def test_every_module_of_the_image_can_be_loaded(guest_a: Vm) -> None:
    """Asked for as modprobe would load it, with what it depends on; nothing is loaded here."""
    names = " ".join(MODULES)
    said = guest_a.run(f"for m in {names}; do modprobe --dry-run $m || echo $m; done", timeout=60)
    assert said.text == ""


@pytest.mark.long
def test_the_test_suite_of_rdma_core_can_be_listed(guest_a: Vm) -> None:
    """181 generic tests, and those of other vendors' devices; listing them imports pyverbs.

    In the quick programs all of them run.
    """
    run = f"/{TESTS}/run_tests.py"
    done = guest_a.agent.run(["python3", run, "--list-tests"], timeout=120)
    names = [line for line in done.text.splitlines() if line.startswith("tests.")]
    generic = [name for name in names if not name.startswith(VENDORS)]
    assert len(generic) == 181, done


def test_a_process_is_ended_by_name(guest_a: Vm) -> None:
    """Scripts that people bring call pkill, nohup and `udevadm settle`."""
    guest_a.run("udevadm settle; nohup sleep 600 > /dev/null 2>&1 & udevadm trigger")
    guest_a.run("until pidof sleep; do :; done; pkill -x sleep; ! pkill -x sleep")


def test_the_hand_over_says_what_is_wrong(guest_a: Vm) -> None:
    refused = guest_a.run(["bluebridge-mlx4", "10.9.0.999/24"], check=False)
    assert refused.status == 1
    assert b"takes no 10.9.0.999/24" in refused.stderr


def test_errors_of_the_kernel_are_in_the_transcript_and_not_on_the_console(guest_a: Vm) -> None:
    """Programs read the console; messages about a guest name the transcript."""
    message = "bluebridge: an error for the transcript"
    guest_a.agent.run(f"echo '<3>{message}' > /dev/kmsg; echo '<4>{message} too' > /dev/kmsg")
    assert guest_a.console.run("echo asked") == "asked"
    transcript = guest_a.console.transcript
    while f"] {message}" not in (text := transcript.read_text().replace("\r", "")):
        guest_a.agent.run("sleep 0.1")
    assert f"{message} too" not in text


def test_every_function_of_ours_goes_to_vfio(guest_a: Vm) -> None:
    """By its identity, or by its address; what cannot be has one line."""
    agent = guest_a.agent
    agent.run("bluebridge-vfio", timeout=60, check=True)
    bound = agent.run("ls -d /sys/bus/pci/drivers/vfio-pci/0000:*", check=True).text.split()
    assert len(bound) == 1
    address = bound[0].rpartition("/")[2]
    agent.run(f"bluebridge-vfio {address}", timeout=60, check=True)
    done = agent.run("bluebridge-vfio 0000:77:00.0", timeout=60)
    assert (done.status, done.stderr) == (
        1,
        b"bluebridge-vfio: there is no PCI function 0000:77:00.0\n",
    )
