"""Commands and failures of a queue pair, logged as a device does."""

from __future__ import annotations

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import cqe
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import CQC, EQC, QPC, QPC_MAILBOX_OFFSET, ServiceType
from tests.models.analysis_log import CQN, EQN, QPN, A, Sender

RECORD = 0x700000
"""The address of the doorbell record of the completion queue."""
UP = ("RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP")


def command(
    sender: Sender,
    name: str,
    *,
    qpn: int = QPN,
    status: str = "OK",
    mailbox: bytes = b"",
    op_mod: int = 0,
) -> None:
    """A firmware command, carried out or refused."""
    sender.host()
    if mailbox:
        size, record = len(mailbox), sender.log.record
        record(A, Kind.DMA_READ, 0, 0x600000, size, mailbox, What.MAILBOX_IN, Opcode[name])
    sender.command(name, status, in_mod=qpn, op_mod=op_mod)


def bring_up(sender: Sender, service: ServiceType = ServiceType.RC) -> None:
    """From RST to RTS."""
    context = QPC.pack(service=service, log_sq_size=6, log_sq_stride=2, log_rq_size=4)
    for name in UP:
        command(sender, name, mailbox=bytes(QPC_MAILBOX_OFFSET) + bytes(context))


def make_rings(sender: Sender) -> None:
    """The completion queue of 256 entries and its event queue of 128."""
    queue = CQC.pack(log_size=8, doorbell_record=RECORD, eqn=EQN)
    command(sender, "SW2HW_EQ", qpn=EQN, mailbox=bytes(EQC.pack(log_size=7)))
    command(sender, "SW2HW_CQ", qpn=CQN, mailbox=bytes(queue))


def failed_send(sender: Sender) -> None:
    """The completion of a send that failed."""
    entry = bytes(
        cqe.ERROR_CQE.pack(
            qpn=QPN, wqe_index=sender.index & 0xFFFF, is_send=1, opcode=cqe.OPCODE_ERROR,
            syndrome=cqe.CompletionStatus.REMOTE_ACCESS_ERR,
        )
    )  # fmt: skip
    sender.log.record(A, Kind.DMA_WRITE, 0, 0x400000, 32, entry, What.CQE, CQN)
