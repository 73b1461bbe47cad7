"""NTRDMA in the views of `bluebridge log`: by name, as work requests, by what a batch costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.ntrdma.port import Spad
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.host_tools.analyzer.analysis import PostedBy, Role, transfers
from bluebridge.host_tools.analyzer.model import load
from bluebridge.host_tools.analyzer.ntrdma import batches as batches_module
from bluebridge.host_tools.analyzer.ntrdma.requests import Batch
from bluebridge.host_tools.analyzer.views.ntrdma import FORGOTTEN, UNSEEN, Costs, costs
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.ntrdma import ntrdma_command
from tests.models.ntrdma_log import CAPACITY, SEND_INDEX, SENDS, Machine, Pair
from tests.unit.analyzer.conftest import Run

WRITE, READ, SEND = WorkCode.WRITE, WorkCode.READ, WorkCode.SEND


def shown(run: Run, folder: Path, *words: str) -> list[str]:
    """Return what `bluebridge log` prints."""
    said = run(folder, *words)
    assert said.status == 0
    return said.out.splitlines()


def named(lines: list[str]) -> list[str]:
    """Return what lines say of NTRDMA, without descriptors."""
    return [
        line.partition("NTRDMA ")[2]
        for line in lines
        if "NTRDMA " in line and "descriptor" not in line
    ]


def test_everything_a_port_tells_has_a_name(tmp_path: Path, run: Run) -> None:
    Pair(tmp_path).log.close()
    lines = named(shown(run, tmp_path, "--decode"))
    assert lines[:4] == [
        "version = 0x10001",
        "address low = 0x10000000",
        "address high = 0x0",
        "ping SPADS_READY sequence=5",
    ]
    assert lines[8].startswith("block msi_address=0xfee00000 msi_data=0x37 msi_count=0x1 bells=")
    assert "ping READY sequence=9" in lines
    text = "\n".join(lines)
    for line in (
        "command 0: MR_CREATE key=0x4400 access=7 address=0x70000000 length=0x100000 capacity=1",
        "commands produced = 1, 1 more",
        "bell 0 (commands) = 1",
        "response 1: QP_CREATE OK key=0x11 recv_entries=0x20007000",
        "commands consumed = 2, 1 more",
        "bell 1 (responses) = 2",
        "command 2: QP_MODIFY key=0x11 state=4 peer_key=0x11 (READY_TO_SEND)",
    ):
        assert line in text


@pytest.mark.parametrize("engine", [True, False], ids=["engine", "processor"])
def test_a_write_in_the_lines_of_the_log(tmp_path: Path, run: Run, engine: bool) -> None:
    """The same by whichever way it is stored."""
    pair = Pair(tmp_path, engine=engine)
    pair.post(WRITE, [8])
    pair.answer(WRITE, [8])
    pair.log.close()
    lines = shown(run, tmp_path, "--decode")
    assert named(lines)[-9:] == [
        "8 bytes of region 0x4400 of b at 0x70000100",
        "send 0 of QP 0x11 of a: WRITE bytes=8 address=0x70000100 key=0x4400",
        "sends produced of QP 0x11 of a = 1, 1 more",
        "bell 9 (sends of QP 0x11 of a) = 1",
        "interrupts b",
        "completion 0 of QP 0x11 of a: WRITE OK bytes=8",
        "sends consumed of QP 0x11 of a = 1, 1 more",
        "bell 8 (completions) = 1",
        "interrupts a",
    ]
    descriptors = [line.partition("NTRDMA ")[2] for line in lines if " descriptor channel" in line][
        -9:
    ]
    assert descriptors == [
        "data, region 0x4400 of b",
        "send, QP 0x11 of a",
        "sends produced, QP 0x11 of a",
        "bell 9 (sends of QP 0x11 of a)",
        "interrupt of b",
        "completion, QP 0x11 of a",
        "sends consumed, QP 0x11 of a",
        "bell 8 (completions)",
        "interrupt of a",
    ] * int(engine)


def test_entries_that_a_processor_stores_in_parts(tmp_path: Path, run: Run) -> None:
    """Its stores are cut anywhere: an entry has its name where its last byte comes."""
    pair = Pair(tmp_path, engine=False)
    entries = pair.entry(WRITE, 8) + pair.entry(WRITE, 9)
    at = pair.a.there + SENDS
    for start, end in ((0, 8), (8, 100), (100, len(entries))):
        pair.a.store(at + start, entries[start:end])
    pair.a.word(pair.a.there + SEND_INDEX, 2)
    pair.a.bell(9)
    pair.log.close()
    assert named(shown(run, tmp_path, "--decode"))[-5:] == [
        "part of send 0 of QP 0x11 of a",
        "send 0 of QP 0x11 of a: WRITE bytes=8 address=0x70000100 key=0x4400",
        "send 1 of QP 0x11 of a: WRITE bytes=9 address=0x70000100 key=0x4400",
        "sends produced of QP 0x11 of a = 2, 2 more",
        "bell 9 (sends of QP 0x11 of a) = 1",
    ]
    assert [(each.opcode, each.length) for each in transfers(tmp_path)] == [
        ("WRITE", 8),
        ("WRITE", 9),
    ]


def test_a_part_of_a_log_is_named_by_what_was_before(tmp_path: Path, run: Run) -> None:
    pair = Pair(tmp_path)
    for _ in range(3):
        pair.post(WRITE, [8])
        pair.answer(WRITE, [8])
    pair.log.close()
    everything = shown(run, tmp_path, "--decode")
    number = next(n for n, line in enumerate(everything) if "send 1 of QP" in line) - 1
    part = shown(run, tmp_path, "--decode", "--event", str(number), "--device", "b.ntb4")
    assert named(part)[0].startswith("send 1 of QP 0x11 of a: WRITE")
    (one,) = [line for line in part if "send 1 of" in line]
    assert one in everything
    assert sum("WRITE" in line for line in shown(run, tmp_path, "--view", "wr")) == 3 + 1
    later = shown(run, tmp_path, "--view", "wr", "--event", str(number))
    assert sum("WRITE" in line for line in later) == 2 + 1


def test_a_write_as_a_work_request(tmp_path: Path, run: Run) -> None:
    """From the doorbell to the interrupt of its completion, each step below its cause."""
    pair = Pair(tmp_path)
    pair.post(WRITE, [8])
    pair.answer(WRITE, [8])
    pair.log.close()
    (write,) = transfers(tmp_path)
    assert (write.device, write.peer, write.qpn, write.index) == ("a", "b", 0x11, 0)
    assert (write.opcode, write.length, write.status) == ("WRITE", 8, "OK")
    assert write.posted_by is PostedBy.DOORBELL
    assert write.count(Role.INTERRUPT, remote=True) == 1
    assert write.count(Role.INTERRUPT, remote=False) == 1
    assert write.count(Role.WINDOW, remote=True) == 4  # data, entry, index, bell
    assert write.count(Role.WINDOW, remote=False) == 3  # completion, index, bell
    lines = shown(run, tmp_path, "--view", "wr", "--tree")
    tree = [
        line.partition("  ")[2].split(None, 1)[1] for line in lines[4:] if line.startswith("  ")
    ]
    steps = [
        "doorbell of the DMA engine, 5 descriptors",
        "  descriptor, data, region 0x4400 of b",
        "    read, 8 bytes",
        "      write into the window, 8 bytes",
        "        8 bytes of region 0x4400 of b at 0x70000100",
        "      completion word of the descriptor",
        "  descriptor, send, QP 0x11 of a",
    ]
    for step, line in zip(steps, tree, strict=False):
        assert line.endswith(step)
    arrived = next(n for n, line in enumerate(lines) if line.endswith("interrupts b"))
    assert lines[arrived + 1].endswith("doorbell of the DMA engine, 4 descriptors")
    assert lines[arrived + 1].index("doorbell") > lines[arrived].index("interrupts")


def only(folder: Path) -> list[Costs]:
    """The rows of machine a."""
    return [row for row in costs(folder) if row.machine == "a"]


@pytest.mark.parametrize("size", [1, 4, 16])
def test_what_a_batch_costs(tmp_path: Path, run: Run, size: int) -> None:
    """One index, one bell and one interrupt each way, however many requests there are."""
    pair = Pair(tmp_path)
    for _ in range(2):
        pair.post(WRITE, [100] * size)
        pair.answer(WRITE, [100] * size)
    pair.log.close()
    (row,) = only(tmp_path)
    assert (row.operation, row.size, row.batches, row.requests) == ("WRITE", size, 2, 2 * size)
    assert row.sender.data == row.peer.entries == 2 * size
    assert row.both.indices == row.both.bells == row.both.interrupts == 4
    assert row.sender.descriptors == row.sender.stores == 2 * (size + 4)
    assert row.per_request(row.both.interrupts) == pytest.approx(2 / size)
    lines = shown(run, tmp_path, "--view", "ntrdma")
    batches = [line.split() for line in lines if " WRITE " in line and line.endswith("OK")]
    assert [words[3:6] for words in batches] == [["WRITE", str(size), str(100 * size)]] * 2
    (means,) = [line for line in lines if line.startswith("a   WRITE")]
    assert f"{2 / size:.3f}" in means


def test_a_batch_at_the_end_of_the_ring(tmp_path: Path) -> None:
    """Its entries are two stores, its requests in order."""
    pair = Pair(tmp_path)
    for sizes in ([1] * 12, [2, 3, 0, 5, 6, 7]):
        pair.post(WRITE, sizes)
        pair.answer(WRITE, sizes)
    pair.log.close()
    found = list(transfers(tmp_path))[12:]
    assert [(each.index, each.length) for each in found] == [
        (12, 2), (13, 3), (14, 0), (15, 5), (16, 6), (17, 7)
    ]  # fmt: skip
    assert [each.posted_by for each in found] == [PostedBy.DOORBELL, *[PostedBy.FOUND] * 5]
    data = [
        [one.length for one in each.of(Role.WINDOW, remote=True) if "region" in one.text]
        for each in found
    ]
    assert data == [[2], [3], [], [5], [6], [7]]
    (row,) = [row for row in only(tmp_path) if row.size == 6]
    assert row.sender.entries == 2


def test_what_requests_share_is_counted_once(tmp_path: Path, run: Run) -> None:
    pair = Pair(tmp_path)
    pair.post(WRITE, [8, 8])
    pair.answer(WRITE, [8, 8])
    pair.log.close()
    first, second = transfers(tmp_path)
    assert not any(one.repeated for one in first.transactions)
    own = [one.text for one in second.transactions if not one.repeated]
    assert [text for text in own if "region" in text or "QP" in text] == [
        "descriptor, data, region 0x4400 of b",
        "8 bytes of region 0x4400 of b at 0x70000100",
    ]
    lines = shown(run, tmp_path, "--view", "wr", "--tree")
    assert any(line.endswith("request 2 of a batch of 2") for line in lines)
    assert any(line.endswith("interrupts b *") for line in lines)


def test_a_read_and_a_send(tmp_path: Path, run: Run) -> None:
    """A read's data come with the answer; a send names the receive that it takes."""
    pair = Pair(tmp_path)
    pair.receive(0)
    pair.post(READ, [5000])
    pair.answer(READ, [5000])
    pair.post(SEND, [64])
    pair.answer(SEND, [64], WorkStatus.RECV_OVERFLOW)
    pair.log.close()
    read, send = transfers(tmp_path)
    assert (read.opcode, read.length, read.status) == ("READ", 5000, "OK")
    assert read.of(Role.WINDOW, remote=False)[0].length == 5000
    assert (send.opcode, send.status) == ("SEND", "RECV_OVERFLOW")
    (note,) = send.notes
    assert note.startswith("receive 0 was posted before, told with event ")
    lines = shown(run, tmp_path, "--decode")
    event = int(note.rpartition(" ")[2])
    assert "receives produced of QP 0x11 of b = 1, 1 more" in lines[event + 1]
    assert any("receive 0 of QP 0x11 of b: pieces=1 4096 bytes at 0x70000000" in x for x in lines)


def test_without_interrupts_and_answers(tmp_path: Path) -> None:
    """A peer that looks by itself; a request that it never answers."""
    pair = Pair(tmp_path)
    pair.post(WRITE, [8], interrupt=False)
    pair.log.close()
    (write,) = transfers(tmp_path)
    assert (write.opcode, write.status) == ("WRITE", "")
    (row,) = only(tmp_path)
    assert (row.sender.interrupts, row.sender.indices, row.peer.stores) == (0, 1, 0)


def test_modelled_times(tmp_path: Path) -> None:
    """The peer acts after a message reached it, and the completion is after that."""
    pair = Pair(tmp_path)
    pair.post(WRITE, [8])
    pair.answer(WRITE, [8])
    pair.log.close()
    (write,) = transfers(tmp_path)
    times = load("system-x").times(write)
    arrivals = [
        time
        for one, time in zip(write.transactions, times, strict=True)
        if one.role in (Role.WINDOW, Role.INTERRUPT) and time is not None
    ]
    assert len(arrivals) == 9
    assert arrivals == sorted(arrivals)
    assert arrivals[0] > 0


def test_ethernet(tmp_path: Path, run: Run) -> None:
    pair = Pair(tmp_path, ethernet=True)
    pair.frame(98)
    pair.log.close()
    lines = named(shown(run, tmp_path, "--decode"))
    assert lines[-7:] == [
        "Ethernet buffer 0: 1514 bytes at 0x20020000",
        "Ethernet buffers produced = 1, 1 more",
        "bell 4 (Ethernet buffers) = 1",
        "Ethernet frame, 98 bytes",
        "Ethernet completion 0: frame of 98 bytes",
        "Ethernet buffers consumed = 1, 1 more",
        "bell 5 (Ethernet frames) = 1",
    ]


def test_an_index_that_cannot_be(tmp_path: Path, run: Run) -> None:
    pair = Pair(tmp_path)
    pair.a.word(pair.a.there + SEND_INDEX, CAPACITY + 1)
    pair.log.close()
    line = named(shown(run, tmp_path, "--decode"))[-1]
    assert line == f"sends produced of QP 0x11 of a = {CAPACITY + 1}, which cannot be"
    assert list(transfers(tmp_path)) == []


def test_stores_that_no_device_sees(tmp_path: Path, run: Run) -> None:
    """A window that is the peer's memory itself."""
    pair = Pair(tmp_path / "seen")
    pair.log.close()
    assert UNSEEN not in shown(run, tmp_path / "seen", "--view", "ntrdma")
    log = FileLog(tmp_path / "unseen")
    for name, peer in (("a", "b"), ("b", "a")):
        Machine(log, name, peer, engine=False).tell_address()
    log.close()
    assert shown(run, tmp_path / "unseen", "--view", "ntrdma")[-1] == UNSEEN


def test_a_log_that_has_lost_its_beginning(tmp_path: Path, run: Run) -> None:
    """Without what the ports told each other nothing can be named, which is said."""
    log = FileLog(tmp_path, total=8192, segment=4096)
    machines = [Machine(log, name, peer, engine=True) for name, peer in (("a", "b"), ("b", "a"))]
    for each in machines:
        each.tell_address()
        each.tell_blocks()
    for number in range(200):
        machines[0].word(machines[0].there + SEND_INDEX, number)
        log.flush()
    log.close()
    assert "NTRDMA" not in "".join(shown(run, tmp_path, "--decode"))
    assert shown(run, tmp_path, "--view", "ntrdma")[-1] == FORGOTTEN


def test_one_write_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path)
    for sizes in ([8], [9]):
        pair.post(WRITE, sizes)
        pair.answer(WRITE, sizes)
    pair.log.close()
    lines = ntrdma_command.one_write(tmp_path, "a")
    assert " WRITE " in lines[2]
    assert lines[-1].endswith("completion word of the descriptor") or "interrupts a" in lines[-1]
    monkeypatch.setattr(ntrdma_command, "_PATIENCE", 0.0)
    with pytest.raises(LabError, match="no RDMA write"):
        ntrdma_command.one_write(tmp_path, "b")


def test_requests_that_nobody_answers_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes indices and no completions makes no view grow."""
    monkeypatch.setattr(batches_module, "MOST_HELD", 100)
    pair = Pair(tmp_path)
    for _ in range(200):
        pair.post(WRITE, [1] * CAPACITY)
    pair.log.close()
    given: list[Batch] = []
    finder = batches_module.BatchFinder()
    for number, event in enumerate(LogReader(tmp_path)):
        given += finder.feed(event)
        assert len(finder.unfinished) <= 101, number
    assert len(given) >= 190


def test_a_version_of_its_own_is_not_named(tmp_path: Path, run: Run) -> None:
    """Scratchpads of another protocol, such as ntb_transport's."""
    pair = Pair(tmp_path)
    pair.b.spad(Spad.VERSION, 4)
    pair.b.spad(Spad.PING, 77)
    pair.log.close()
    assert "NTRDMA" not in shown(run, tmp_path, "--decode")[-1]
