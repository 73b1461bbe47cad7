"""A guest whose commands and contexts break every rule: it hurts itself, nobody else."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC, QPC, QPC_MAILBOX_OFFSET
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, SEND_DOORBELL
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.drivers.hca.resources.commands import FirmwareError
from bluebridge.guest.verbs import QpState, WcStatus
from bluebridge.host_tools.vfio_user.bus import RAM_BASE, RAM_SIZE, SocketBus
from tests.models.players import PATTERN, Player

OK = WcStatus.SUCCESS
pytestmark = pytest.mark.usefixtures("bystanders")
Buses = tuple[SocketBus, SocketBus]


def test_mailbox_that_is_no_memory(attacker: Context) -> None:
    for address in (0, 0xFFF, 0xDEAD_0000_0000, (1 << 64) - 4096, RAM_BASE + RAM_SIZE - 16):
        with pytest.raises(FirmwareError):
            attacker.adapter.commands.run(Opcode.SW2HW_CQ, 0x90, param=address)


def status_of(attacker: Context, opcode: Opcode, number: int, data: bytes) -> Status:
    """Return what the firmware says to a command."""
    try:
        attacker.adapter.commands.run(opcode, number, data=data)
    except FirmwareError as error:
        return Status(error.status)
    return Status.OK


@pytest.mark.parametrize(
    ("spoilt", "status"),
    [
        ({"mtt_addr": 0xFFFFFFFFF8}, Status.ICM_ERROR),
        ({"mtt_addr": 8 << 17}, Status.BAD_PARAM),
        ({"log_size": 31}, Status.BAD_PARAM),
        ({"log_page_size": 63}, Status.BAD_PARAM),
        ({"eqn": 0xFF}, Status.BAD_RESOURCE),
        ({"doorbell_record": 0xDEAD_0000_0000}, Status.OK),
        ({}, Status.OK),
    ],
    ids=lambda value: next(iter(value), "nothing") if isinstance(value, dict) else None,
)
def test_cq_contexts(attacker: Context, spoilt: dict[str, int], status: Status) -> None:
    """Refused for what is spoilt alone; the memory of a refused queue is not written to.

    Where the doorbell record lies matters only when the queue is full.
    """
    memory = attacker.allocate(4096)
    memory.view[:] = PATTERN[:4096]
    good: dict[str, int | bytes] = {
        "log_size": 4, "uar": 128, "eqn": attacker.async_events.eqn,
        "mtt_addr": attacker.adapter.icm.allocate_mtt_contiguous(memory.address, 4096).address,
    }  # fmt: skip
    cqn = attacker.adapter.numbers.completion_queues.allocate()
    context = bytes(CQC.pack({**good, **spoilt}))
    assert status_of(attacker, Opcode.SW2HW_CQ, cqn, context) is status
    if status is not Status.OK:
        assert bytes(memory.view) == PATTERN[:4096]
        assert status_of(attacker, Opcode.SW2HW_CQ, cqn, bytes(CQC.pack(good))) is Status.OK
    attacker.adapter.commands.run(Opcode.HW2SW_CQ, cqn, 1)


@pytest.mark.parametrize(
    ("spoilt", "status"),
    [
        ({"mtt_addr": 0xFFFFFFFFF8}, Status.ICM_ERROR),
        ({"log_sq_size": 15, "log_sq_stride": 7}, Status.BAD_PARAM),
        ({"log_rq_size": 15, "log_rq_stride": 7}, Status.OK),
        ({"log_page_size": 63}, Status.BAD_PARAM),
        ({"cqn_send": 0xFFFFFF}, Status.OK),
        ({"cqn_recv": 0xFFFFFF}, Status.OK),
        ({"use_srq": 1, "srqn": 0xFFFFFF}, Status.OK),
        ({"service": 0x55}, Status.BAD_PARAM),
        ({"pd": 0xFFFFFF}, Status.OK),
        ({"doorbell_record": 0xDEAD_0000_0000}, Status.OK),
        ({}, Status.OK),
    ],
    ids=lambda value: next(iter(value), "nothing") if isinstance(value, dict) else None,
)
def test_qp_contexts(attacker: Context, spoilt: dict[str, int], status: Status) -> None:
    """Refused, or usable without harm: bring it to RTS, ring its doorbell, reset it."""
    player = Player(attacker)
    player.view[:] = PATTERN
    qpn = player.qp.qpn
    good: dict[str, int | bytes] = {
        "local_qpn": qpn, "uar": 128, "pd": player.pd.pdn, "log_sq_size": 4, "log_sq_stride": 3,
        "cqn_send": player.cq.cqn, "cqn_recv": player.cq.cqn,
        "mtt_addr": player.hca_qp.mtt.address,
    }  # fmt: skip
    mailbox = bytes(QPC_MAILBOX_OFFSET) + bytes(QPC.pack({**good, **spoilt}))
    assert status_of(attacker, Opcode.RST2INIT_QP, qpn, mailbox) is status
    if status is Status.OK:
        for opcode in (Opcode.INIT2RTR_QP, Opcode.RTR2RTS_QP):
            attacker.adapter.commands.run(opcode, qpn, data=mailbox)
        assert player.qp.query_state() is QpState.RTS
        attacker.adapter.bus.write32(2, attacker.adapter.uar * PAGE_SIZE + SEND_DOORBELL, qpn << 8)
        attacker.adapter.commands.run(Opcode.TOERR_QP, qpn, data=mailbox)
        assert player.qp.query_state() is QpState.ERR
    attacker.adapter.commands.run(Opcode.TORST_QP, qpn, 2)
    assert bytes(player.view) == PATTERN
