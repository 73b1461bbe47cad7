"""The states of queue pairs along a log: by commands, by what failed, by resets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.record import WORK_DEVICE_SHIFT, WORK_QPN_SHIFT
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4 import cqe, eqe, uar
from bluebridge.device.layout.mlx4.contexts import CQC, QPC_MAILBOX_OFFSET, ServiceType
from bluebridge.device.layout.mlx5.commands import INLINE_BYTES, name_of
from bluebridge.device.layout.mlx5.commands import Opcode as Mlx5Opcode
from bluebridge.device.layout.mlx5.contexts import SQC, QueueState
from bluebridge.device.layout.mlx5.cqe import CQE, ERROR_CQE, CqeOpcode
from bluebridge.device.layout.mlx5.objects import CONTEXT
from bluebridge.device.layout.mlx5.queue_pairs import QP_CONTEXT, QPC, Service
from bluebridge.host_tools.analyzer.devices.model import PairContext
from bluebridge.host_tools.analyzer.queues import Pair, Queues
from bluebridge.host_tools.analyzer.transaction import Role
from bluebridge.host_tools.web.moments import Moments, queue_answer
from tests.models.analysis_log import CQN, EQN, QPN, A, Sender
from tests.models.queue_log import RECORD, bring_up, command, failed_send, make_rings

PAIR = ("a", QPN)


def _queues(sender: Sender, folder: Path) -> Queues:
    sender.log.flush()
    queues = Queues()
    for event in LogReader(folder):
        queues.feed(event)
    return queues


def _after(sender: Sender, folder: Path) -> Pair:
    return _queues(sender, folder).pairs.get(PAIR, Pair())


def _ring(sender: Sender, folder: Path, role: Role, number: int) -> tuple[int | None, ...]:
    """Slots, producer and consumer of a ring of a; empty where it is not known."""
    return _queues(sender, folder).rings.known.get(("a", role, number), ())[:3]


def _ways(pair: Pair) -> list[str]:
    return [f"{each.source}>{each.target}" for each in pair.taken]


@pytest.fixture
def sender(tmp_path: Path) -> Sender:
    found = Sender(tmp_path)
    bring_up(found)
    return found


def test_commands_move_a_queue_pair(sender: Sender, tmp_path: Path) -> None:
    for name in ("RTS2SQD_QP", "SQD2RTS_QP", "RTS2RTS_QP"):
        command(sender, name)
    pair = _after(sender, tmp_path)
    assert pair.state == "RTS"
    assert _ways(pair) == ["RST>INIT", "INIT>RTR", "RTR>RTS", "RTS>SQD", "SQD>RTS"]
    assert pair.taken[-1].event == pair.event


def test_a_command_that_was_refused_moves_nothing(sender: Sender, tmp_path: Path) -> None:
    command(sender, "TOERR_QP", status="BAD_QP_STATE")
    command(sender, "TOERR_QP", qpn=QPN + 1)
    assert _after(sender, tmp_path).state == "RTS"


@pytest.mark.parametrize(("service", "state"), [(ServiceType.RC, "ERR"), (ServiceType.UD, "SQER")])
def test_a_failed_send_closes_the_queue_pair_or_its_send_queue(
    tmp_path: Path, service: ServiceType, state: str
) -> None:
    sender = Sender(tmp_path)
    bring_up(sender, service)
    failed_send(sender)
    assert _after(sender, tmp_path).state == state


def test_an_event_about_a_queue_pair_says_that_it_failed(sender: Sender, tmp_path: Path) -> None:
    told = bytes(eqe.QP_EQE.pack(type=eqe.EventType.WQ_ACCESS_ERROR, qpn=QPN))
    sender.log.record(A, Kind.DMA_WRITE, 0, 0x500000, 32, told, What.EQE, 4)
    assert _after(sender, tmp_path).state == "ERR"


def test_a_reset_of_the_function_ends_its_queue_pairs(sender: Sender, tmp_path: Path) -> None:
    sender.log.tell(A, Fact.RESET, cause="software")
    pair = _after(sender, tmp_path)
    assert (pair.state, _ways(pair)[-1]) == ("RST", "RTS>RST")


def test_a_log_that_begins_later_does_not_say_the_state(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    failed_send(sender)
    assert _after(sender, tmp_path) == Pair()
    command(sender, "TOERR_QP")
    pair = _after(sender, tmp_path)
    assert (pair.state, pair.taken) == ("ERR", ())


def test_moments_are_those_of_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From copies and forwards and backwards, each moment is what one pass up to it finds."""
    monkeypatch.setattr("bluebridge.host_tools.web.moments._APART", 5)
    monkeypatch.setattr("bluebridge.host_tools.web.moments._MOST_KEPT", 8)
    sender = Sender(tmp_path)
    for _ in range(6):
        bring_up(sender)
        sender.post()
        failed_send(sender)
        command(sender, "TORST_QP")
    sender.log.flush()
    passed, queues = [], Queues()
    for event in LogReader(tmp_path):
        queues.feed(event)
        passed.append(queues.copy())
    moments = Moments(tmp_path)
    for number in (*range(len(passed)), *reversed(range(len(passed))), 3, 40, 9):
        then, last, end, done = moments.at(number, 60.0)
        assert then is not None and done and end == len(passed)
        assert then.pairs == passed[number].pairs
        assert then.rings.known == passed[number].rings.known
        assert last.pairs == passed[-1].pairs


def test_a_long_log_is_passed_in_several_requests(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    bring_up(sender)
    for _ in range(60):
        sender.post()
    command(sender, "TOERR_QP")
    sender.log.flush()
    moments, rounds, done = Moments(tmp_path), 0, False
    while not done:
        then, last, end, done = moments.at(0, 0.0)
        rounds += 1
        assert then is not None
    assert rounds > 1
    assert last.pairs[PAIR].state == "ERR"
    assert moments.at(end + 9, 60.0)[0] is not None


@pytest.fixture
def ready(sender: Sender) -> Sender:
    make_rings(sender)
    return sender


def test_a_send_moves_the_indices_of_its_rings(ready: Sender, tmp_path: Path) -> None:
    ready.post()
    ready.post(announced=True)
    assert _ring(ready, tmp_path, Role.WQE, QPN) == (64, 2, 2)
    assert _ring(ready, tmp_path, Role.CQE, CQN) == (256, 2, 0)
    assert _ring(ready, tmp_path, Role.EQE, EQN) == (128, 1, 0)
    ready.doorbell()
    ready.fetch(ready.entry(8, inline=True, blueflame=False))
    assert _ring(ready, tmp_path, Role.WQE, QPN) == (64, 3, 2)
    queues = _queues(ready, tmp_path)
    assert queues.rings.completes[PAIR] == (CQN, None)
    assert queues.rings.known["a", Role.CQE, CQN].events == EQN


@pytest.mark.parametrize("by", ["doorbell", "blueflame"])
def test_an_entry_of_several_slots_is_done_as_a_whole(
    ready: Sender, tmp_path: Path, by: str
) -> None:
    ready.post(150, by=by, inline=True)  # 192 bytes
    assert _ring(ready, tmp_path, Role.WQE, QPN) == (64, 3, 3)


def test_doorbells_and_records_say_how_far_software_has_read(ready: Sender, tmp_path: Path) -> None:
    ready.post(announced=True)
    record = ready.log.record
    told = uar.cq_doorbell(0, uar.CQ_ARM_NEXT, CQN, 1).to_bytes(8, "big")
    record(A, Kind.MMIO_WRITE, 2, uar.CQ_DOORBELL, 8, told)
    told = (uar.EQ_ARM | 1).to_bytes(4, "big")
    record(A, Kind.MMIO_WRITE, 2, uar.eq_doorbell_offset(EQN), 4, told)
    assert _ring(ready, tmp_path, Role.CQE, CQN) == (256, 1, 1)
    assert _ring(ready, tmp_path, Role.EQE, EQN) == (128, 1, 1)
    read = bytes(3) + b"\7"
    record(A, Kind.DMA_READ, 0, RECORD, 4, read, What.DOORBELL_RECORD, CQN)
    assert _ring(ready, tmp_path, Role.CQE, CQN) == (256, 1, 7)


def test_a_receive_ring_has_what_its_record_and_completions_say(
    ready: Sender, tmp_path: Path
) -> None:
    """The numbers of a queue pair and a completion queue may be the same."""
    command(ready, "RST2INIT_QP", qpn=CQN, mailbox=bytes(QPC_MAILBOX_OFFSET + 64))
    assert _ring(ready, tmp_path, Role.RECEIVE_WQE, CQN) == (1, None, None)
    record = ready.log.record
    record(A, Kind.DMA_READ, 0, 0x9000, 4, b"\0\0\0\5", What.DOORBELL_RECORD, CQN)
    entry = bytes(cqe.CQE.pack(qpn=CQN, wqe_index=1, is_send=0, opcode=cqe.RecvOpcode.SEND))
    record(A, Kind.DMA_WRITE, 0, 0x400000, 32, entry, What.CQE, CQN)
    assert _ring(ready, tmp_path, Role.RECEIVE_WQE, CQN) == (1, 5, 2)
    assert _ring(ready, tmp_path, Role.CQE, CQN) == (256, 1, 0)


def test_a_resized_ring_has_its_new_size_and_goes_on(ready: Sender, tmp_path: Path) -> None:
    """Moderation, the same command with another modifier, moves nothing."""
    ready.post(announced=True)
    command(ready, "MODIFY_CQ", qpn=CQN, mailbox=bytes(CQC.pack(period=16)), op_mod=1)
    assert _ring(ready, tmp_path, Role.CQE, CQN) == (256, 1, 0)
    command(ready, "MODIFY_CQ", qpn=CQN, mailbox=bytes(CQC.pack(log_size=10)))
    assert _ring(ready, tmp_path, Role.CQE, CQN) == (1024, 1, 0)


def test_indices_of_a_log_that_begins_later_are_not_made_up(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    sender.post(announced=True)
    assert _ring(sender, tmp_path, Role.CQE, CQN) == ()
    assert _ring(sender, tmp_path, Role.WQE, QPN) == (0, 1, 1)


class TestConnectX5:
    """Queue pairs of a ConnectX-5, whose rings CREATE_QP describes and which end by a command."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> FileLog:
        log = FileLog(tmp_path)
        log.device("a", "connectx5")
        return log

    @staticmethod
    def carried_out(log: FileLog, *names: str, status: str = "OK", **values: int) -> None:
        """Commands on a queue pair, with a chain of two mailboxes each."""
        for name in names:
            context = bytes(QPC.pack({"service": Service.RC, "rq_type": 0, **values}))
            first = bytes(QP_CONTEXT - INLINE_BYTES) + context
            for mailbox in (first, b"\xff" * len(first)):
                log.record(
                    A, Kind.DMA_READ, 0, 0x6000, len(first), mailbox[:400],
                    What.MAILBOX_IN, Mlx5Opcode[name],
                )  # fmt: skip
            told = name_of(Mlx5Opcode[name])
            log.tell(A, Fact.FIRMWARE_COMMAND, name=told, slot=1, word="qpn", number=QPN,
                     status=status, us=9)  # fmt: skip

    def pair(self, log: FileLog, folder: Path) -> Pair:
        """The queue pair after all that was logged."""
        log.flush()
        queues = Queues()
        for event in LogReader(folder):
            queues.feed(event)
        return queues.pairs.get(PAIR, Pair())

    def test_commands_and_failures_move_it(self, log: FileLog, tmp_path: Path) -> None:
        self.carried_out(log, "CREATE_QP", log_sq_size=6, log_rq_size=4)
        made = self.pair(log, tmp_path)
        assert (made.state, made.context) == ("RST", PairContext(False, 64, 64, 16))
        self.carried_out(log, "RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP", "RTS2RTS_QP")
        assert _ways(self.pair(log, tmp_path)) == ["RST>INIT", "INIT>RTR", "RTR>RTS"]
        entry = bytes(ERROR_CQE.pack(opcode=CqeOpcode.REQUEST_ERROR, qpn=QPN, syndrome=0x13))
        log.record(A, Kind.DMA_WRITE, 0, 0x4000, 64, entry, What.CQE, CQN)
        failed = self.pair(log, tmp_path)
        assert (failed.state, failed.context) == ("ERR", PairContext(False, 64, 64, 16))
        self.carried_out(log, "TORST_QP")
        assert self.pair(log, tmp_path).state == "RST"

    def test_a_number_that_is_used_again(self, log: FileLog, tmp_path: Path) -> None:
        self.carried_out(log, "CREATE_QP", log_sq_size=6)
        self.carried_out(log, "RST2INIT_QP", "TOERR_QP", "DESTROY_QP")
        self.carried_out(log, "CREATE_QP", log_sq_size=3)
        self.carried_out(log, "RST2INIT_QP")
        self.carried_out(log, "INIT2RTR_QP", status="BAD_PARAM")
        pair = self.pair(log, tmp_path)
        assert (pair.state, _ways(pair)) == ("INIT", ["RST>INIT"])
        assert pair.context is not None and pair.context.send_slots == 8

    def test_queues_of_frames_have_states_of_their_own(self, log: FileLog, tmp_path: Path) -> None:
        def modify(state: QueueState) -> None:
            mailbox = bytes(CONTEXT - INLINE_BYTES) + bytes(SQC.pack(state=state))
            log.record(A, Kind.DMA_READ, 0, 0x6000, 576, mailbox, What.MAILBOX_IN,
                       Mlx5Opcode.MODIFY_SQ)  # fmt: skip
            log.tell(A, Fact.FIRMWARE_COMMAND, name="MODIFY_SQ", slot=1, word="sqn", number=QPN,
                     status="OK", us=9)  # fmt: skip

        modify(QueueState.RDY)  # one that was made before the log began
        assert self.pair(log, tmp_path)[:3:2] == ("RDY", ())
        self.carried_out(log, "DESTROY_SQ", "CREATE_SQ")
        modify(QueueState.RDY)
        entry = bytes(ERROR_CQE.pack(opcode=CqeOpcode.REQUEST_ERROR, qpn=QPN, syndrome=4))
        log.record(A, Kind.DMA_WRITE, 0, 0x4000, 64, entry, What.CQE, CQN)
        failed = self.pair(log, tmp_path)
        assert (failed.state, _ways(failed)) == ("ERR", ["RST>RDY", "RDY>ERR"])
        log.flush()
        moments = Moments(tmp_path)
        drawn = queue_answer(moments, moments.end(), PAIR)
        assert drawn["states"] == ("RST", "RDY", "ERR")
        assert ("RDY", "ERR") in drawn["edges"]
        self.carried_out(log, "CREATE_QP")  # the number is used again
        assert self.pair(log, tmp_path)[:1] == ("RST",)

    def test_sends_and_receives_move_its_rings(self, log: FileLog, tmp_path: Path) -> None:
        self.carried_out(log, "CREATE_QP", log_sq_size=6, log_rq_size=4)
        self.carried_out(log, "RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP")
        log.work = A + 1 << WORK_DEVICE_SHIFT | QPN << WORK_QPN_SHIFT | 5
        log.record(A, Kind.DMA_READ, 0, 0x5000, 100, bytes(100), What.SQ_WQE, QPN)
        for opcode, counter in ((CqeOpcode.REQUEST, 5), (CqeOpcode.RESPONSE_SEND, 2)):
            entry = bytes(CQE.pack(opcode=opcode, qpn=QPN, wqe_counter=counter))
            log.record(A, Kind.DMA_READ, 0, 0x6000, 4, b"\0\0\0\4", What.DOORBELL_RECORD, QPN)
            log.record(A, Kind.DMA_WRITE, 0, 0x4000, 64, entry, What.CQE, CQN)
        log.flush()
        queues = Queues()
        for event in LogReader(tmp_path):
            queues.feed(event)
        rings = queues.rings.known
        assert rings["a", Role.WQE, QPN][:3] == (64, 7, 7)
        assert rings["a", Role.RECEIVE_WQE, QPN][:3] == (16, 4, 3)
