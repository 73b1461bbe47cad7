"""`bluebridge up --host a,b` and `bluebridge python`: sides that programs of this machine play."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.lab_commands import ROOT, Commands, alive

EXAMPLE = str(ROOT / "docs" / "send_receive.py")
HOLDS = "import sys; from bluebridge.host_tools.hosts.prompt import *; print('open', flush=True); "
"""The beginning of a program that has its HCA open."""
WAITS = f"{HOLDS} sys.stdin.read()"
WRITES = """\
from bluebridge.guest.bus.machine import open_bus
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import AccessFlags, QpInit, QpType, SendWr, Sge, WrOpcode

with open_device(open_bus()) as hca:
    memory, pd, cq = hca.allocate(4096), hca.alloc_pd(), hca.create_cq(16)
    rights = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
    mr = pd.reg_mr(memory.address, 4096, access=rights)
    qp = pd.create_qp(QpInit(QpType.RC, cq, cq))
    qp.modify_init(rights)
    print(hca.address.hex(), qp.qpn, memory.address, mr.rkey, flush=True)
    address, peer, target, key = input().split()
    qp.modify_rtr(hca.address_vector(bytes.fromhex(address)), int(peer), min_rnr_timer=1)
    qp.modify_rts(timeout=8, retry_count=1, rnr_retry=1)
    print("connected", flush=True)
    for line in iter(input, "end"):
        request = SendWr(1, WrOpcode[line], [Sge(memory.address, 8, mr.lkey)])
        request.remote_addr, request.rkey = int(target), int(key)
        qp.post_send(request)
        while not (done := cq.poll(1)):
            pass
        print(done[0].status.name, flush=True)
"""
"""A program that says where its memory is, hears where the peer's is, and posts what it is told."""


class Program:
    """A program on a host, with its streams."""

    def __init__(self, commands: Commands, host: str, *words: str) -> None:
        self.process = commands.start("python", host, *words, stdin=subprocess.PIPE)

    def says(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def hears(self, line: str) -> None:
        """Type a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Close its input; return its status and what it said on standard error."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors.decode()


Start = Callable[..., Program]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A pair without a guest, for all tests."""
    commands = Commands(tmp_path_factory.mktemp("lab"))
    commands.good("up", "--host", "a,b", "--quiet")
    yield commands
    commands.close()


@pytest.fixture
def python(lab: Commands) -> Iterator[Start]:
    """Starts programs on hosts; those that are left are killed."""
    started: list[Program] = []

    def start(host: str, *words: str) -> Program:
        started.append(Program(lab, host, *words))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def writers(python: Start, folder: Path) -> tuple[Program, Program]:
    """A program on each side, connected to the other."""
    path = folder / "writes.py"
    path.write_text(WRITES)
    a, b = python("a", str(path)), python("b", str(path))
    of_a, of_b = a.says(), b.says()
    a.hears(of_b)
    b.hears(of_a)
    assert a.says() == b.says() == "connected"
    return a, b


def test_a_program_of_guests_runs_as_it_is(python: Start) -> None:
    """The example of docs/verbs.md, which two guests run by `python3`."""
    sender, receiver = python("a", EXAMPLE, "send"), python("b", EXAMPLE, "receive")
    of_sender, of_receiver = sender.says(), receiver.says()
    receiver.hears(of_sender)
    sender.hears(of_receiver)
    (first, sent), (second, received) = sender.end(), receiver.end()
    assert (first, second) == (0, 0)
    assert "SEND" in sent and "RECV b'hello'" in received


def test_a_prompt_has_the_hca_open(lab: Commands) -> None:
    """Names of verbs, registers and the HCA; its end gives the card back."""
    with lab.terminal("python", "b") as prompt:
        prompt.expect("hca is mlx4_0, open")
        prompt.expect(">>> ")
        prompt.sendline("hca.create_cq(16), QpType.RC, bus.read32(0, 0)")
        prompt.expect("Cq object .*QpType.RC.*, 0")
        assert "process" in lab.good("ps")
        assert "no queue pairs" in lab.good("show", "b", "qp")
        assert "0x80" in lab.good("show", "b", "cq")
        prompt.sendline("exit()")
        prompt.wait()
    assert lab.guest("b")["programs"] == []
    assert "no driver has started it" in lab.good("show", "b", "cq")


def test_two_programs_for_one_card(lab: Commands, python: Start) -> None:
    """One line that names the first; `restart` ends that one, and the next has the card."""
    first = python("b", "-c", WAITS)
    assert first.says().startswith("hca is") and first.says() == "open"
    (program,) = lab.guest("b")["programs"]
    assert program["pid"] == first.process.pid
    status, line = lab.bad("python", "b", "-c", WAITS)
    assert status == 1 and f"held by process {first.process.pid} (python" in line
    assert "`bluebridge restart b`" in line
    assert f"ended process {first.process.pid}" in lab.good("restart", "b")
    assert not alive(first.process.pid)
    assert lab.good("python", "b", "-c", f"{HOLDS} print(hca.name)").endswith("mlx4_0\n")


def test_a_program_that_dies_is_dead_hardware_to_its_peer(python: Start, tmp_path: Path) -> None:
    """Its peer's retries run out; the next program finds the card as after a reset."""
    a, b = writers(python, tmp_path)
    a.hears("RDMA_WRITE")
    assert a.says() == "SUCCESS"
    b.process.kill()
    told = "SUCCESS"
    while told == "SUCCESS":  # until the server has seen the end
        a.hears("RDMA_WRITE")
        told = a.says()
    assert told == "RETRY_EXC_ERR"
    a.hears("end")
    assert a.end()[0] == 0
    a, b = writers(python, tmp_path)
    b.hears("RDMA_WRITE")
    assert b.says() == "SUCCESS"


def test_a_program_that_stands_in_a_debugger(python: Start, tmp_path: Path) -> None:
    """Its card goes on by itself: memory is written to, and what needs the program is not ready."""
    a, b = writers(python, tmp_path)
    b.process.send_signal(signal.SIGSTOP)
    a.hears("RDMA_WRITE")
    assert a.says() == "SUCCESS"
    a.hears("SEND")
    assert a.says() == "RNR_RETRY_EXC_ERR"
    b.process.send_signal(signal.SIGCONT)
    b.hears("end")
    assert b.end()[0] == 0


def test_a_stopped_program_ends_by_restart(lab: Commands, python: Start) -> None:
    stopped = python("b", "-c", WAITS)
    assert stopped.says() and stopped.says() == "open"
    stopped.process.send_signal(signal.SIGSTOP)
    lab.wait(lambda: f"stopped; go on with: kill -CONT {stopped.process.pid}" in lab.good("ps"))
    lab.good("restart", "b")
    assert stopped.process.wait(10) == -signal.SIGKILL


def test_breakpoints_of_a_peer(lab: Commands, tmp_path: Path) -> None:
    """`breakpoint()` in a program stops that program, with its card."""
    path = tmp_path / "program.py"
    path.write_text(
        "from bluebridge.guest.bus.machine import open_bus\n"
        "from bluebridge.guest.providers import open_device\n"
        "with open_device(open_bus()) as hca:\n"
        "    breakpoint()\n"
        "    print('over')\n"
    )
    with lab.terminal("python", "b", str(path)) as debugger:
        debugger.expect(r"\(Pdb\) ")
        debugger.sendline("p hca.query_port().active")
        debugger.expect("True")
        debugger.sendline("c")
        debugger.expect("over")
        debugger.wait()
        assert debugger.exitstatus == 0


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        ("run b -- ls", 2, "b is a host: no machine, but programs here; `bluebridge python b`"),
        ("cp b:/etc/hostname here", 2, "b is a host: "),
        ("boot b --pxe", 2, "b is a host: "),
        ("python c", 2, "there is no guest c; these run: a, b"),
        ("up --host b", 2, "--host b: the next pair is a2 and b2; write --host b2, or"),
        ("python b no/such/file.py", 2, "can't open file"),
    ],
)
def test_what_makes_no_sense_is_one_line(lab: Commands, words: str, status: int, line: str) -> None:
    found, said = lab.bad(*words.split())
    assert found == status and line in said


def test_the_console_of_a_host(lab: Commands) -> None:
    with lab.terminal("console", "b") as console:
        console.expect("b is a host: no machine, but programs here")
        console.wait()
        assert console.exitstatus == 2


def test_faults_links_marks_and_the_log(lab: Commands, python: Start, tmp_path: Path) -> None:
    """The cable and the faults of such a side are those of a guest's; the log has its accesses."""
    a, b = writers(python, tmp_path)
    assert "host b: port 1: cable pulled out" in lab.good("link", "b", "down")
    a.hears("RDMA_WRITE")
    assert a.says() == "RETRY_EXC_ERR"
    lab.good("link", "b", "up")
    for each in (a, b):
        each.hears("end")
        assert each.end()[0] == 0
    lab.good("mark", "b", "half way")
    logs = lab.ps()["pairs"][0]["logs"]
    told = lab.good("log", logs, "--from-mark", "half way", "--decode")
    assert "half way" in told
    lab.good("python", "a", "-c", f"{HOLDS} print(hca.name)")
    assert "INIT_HCA" in lab.good("log", logs, "--from-mark", "half way", "--kind", "command")


def test_down_leaves_a_program_with_dead_hardware(tmp_path: Path) -> None:
    """It is told that its device is gone, and is nobody's to end but its user's."""
    commands = Commands(tmp_path)
    commands.good("up", "--host", "a,b", "--quiet")
    code = f"{HOLDS} sys.stdin.readline(); hca.create_cq(16)"
    program = Program(commands, "a", "-c", code)
    assert program.says() and program.says() == "open"
    commands.close()
    program.hears("")
    status, errors = program.end()
    assert status == 1 and "the device is gone (reads return all ones)" in errors
    assert not os.path.exists(commands.runtime)
