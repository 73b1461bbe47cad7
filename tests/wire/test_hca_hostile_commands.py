"""A guest whose commands and contexts break every rule: it hurts itself, nobody else."""

from __future__ import annotations

import random

import pytest

from device.layout.mlx4.commands import Opcode
from device.layout.mlx4.contexts import CQC, QPC, QPC_MAILBOX_OFFSET
from device.layout.mlx4.uar import PAGE_SIZE, SEND_DOORBELL
from guest.hca.reset import reset_device
from guest.verbs import (
    Context,
    FirmwareError,
    WcStatus,
    open_device,
)
from tests.wire.bus import RAM_BASE, RAM_SIZE, WireBus
from tests.wire.players import Player

OK = WcStatus.SUCCESS
pytestmark = pytest.mark.usefixtures("bystanders")
Buses = tuple[WireBus, WireBus]


def test_random_commands(hca_buses: Buses, attacker: Context) -> None:
    """Every opcode with modifiers and mailboxes of any value; then a reset brings all back."""
    noise = random.Random(1)
    commands = attacker.commands
    refused = 0
    for opcode in sorted(set(range(0x70)) | {0xFF6, *range(0xFF9, 0x1000)}):
        for _ in range(4):
            modifier = noise.choice((0, 1, 2, 8, 0x48, noise.getrandbits(32)))
            data = noise.randbytes(4096) if noise.random() < 0.5 else bytes(4096)
            try:
                commands.run(opcode, modifier, noise.randrange(16), data=data)
            except FirmwareError:
                refused += 1
            try:
                commands.run(opcode, modifier, 0, param=noise.getrandbits(64))
            except FirmwareError:
                refused += 1
    assert refused > 100
    reset_device(hca_buses[0])
    attacker.commands._toggle = 1
    attacker._open = False
    with open_device(hca_buses[0]) as again:
        assert again.port_active


def test_mailbox_that_is_no_memory(attacker: Context) -> None:
    for address in (0, 0xFFF, 0xDEAD_0000_0000, (1 << 64) - 4096, RAM_BASE + RAM_SIZE - 16):
        with pytest.raises(FirmwareError):
            attacker.commands.run(Opcode.SW2HW_CQ, 0x90, param=address)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"mtt_addr": 0xFFFFFFFFF8},
        {"mtt_addr": 8 << 17},
        {"log_size": 31},
        {"log_page_size": 63},
        {"eqn": 0xFF},
        {"doorbell_record": 0xDEAD_0000_0000},
    ],
    ids=lambda values: next(iter(values)),
)
def test_cq_contexts(attacker: Context, spoilt: dict[str, int]) -> None:
    """Either refused, or a queue that harms nobody."""
    good = {"log_size": 4, "uar": 128, "eqn": attacker.async_events.eqn, "mtt_addr": 0x100}
    context = CQC.pack({**good, **spoilt})
    try:
        attacker.commands.run(Opcode.SW2HW_CQ, 0x90, data=context)
    except FirmwareError:
        return
    attacker.commands.run(Opcode.HW2SW_CQ, 0x90, 1)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"mtt_addr": 0xFFFFFFFFF8},
        {"log_sq_size": 15, "log_sq_stride": 7},
        {"log_rq_size": 15, "log_rq_stride": 7},
        {"log_page_size": 63},
        {"cqn_send": 0xFFFFFF},
        {"cqn_recv": 0xFFFFFF},
        {"use_srq": 1, "srqn": 0xFFFFFF},
        {"service": 0x55},
        {"pd": 0xFFFFFF},
        {"doorbell_record": 0xDEAD_0000_0000},
    ],
    ids=lambda values: next(iter(values)),
)
def test_qp_contexts(attacker: Context, spoilt: dict[str, int]) -> None:
    """Refused, or usable without harm: bring it to RTS, ring its doorbell, reset it."""
    player = Player(attacker)
    player.qp.modify_init()
    qpn = player.qp.qpn
    attacker.commands.run(Opcode.TORST_QP, qpn, 2)
    good: dict[str, int | bytes] = {
        "local_qpn": qpn, "uar": 128, "pd": player.pd.pdn, "log_sq_size": 4, "log_sq_stride": 3,
        "cqn_send": player.cq.cqn, "cqn_recv": player.cq.cqn, "mtt_addr": player.qp._mtt.address,
    }  # fmt: skip
    mailbox = bytes(QPC_MAILBOX_OFFSET) + bytes(QPC.pack({**good, **spoilt}))
    try:
        for opcode in (Opcode.RST2INIT_QP, Opcode.INIT2RTR_QP, Opcode.RTR2RTS_QP):
            attacker.commands.run(opcode, qpn, data=mailbox)
        attacker.bus.write32(2, attacker.uar * PAGE_SIZE + SEND_DOORBELL, qpn << 8)
        attacker.commands.run(Opcode.TOERR_QP, qpn, data=mailbox)
    except FirmwareError:
        pass
    attacker.commands.run(Opcode.TORST_QP, qpn, 2)
