"""Commands and failures of a queue pair, logged as a device does."""

from __future__ import annotations

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import cqe
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QPC, QPC_MAILBOX_OFFSET, ServiceType
from tests.models.analysis_log import CQN, QPN, A, Sender

UP = ("RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP")


def command(
    sender: Sender, name: str, *, qpn: int = QPN, status: str = "OK", mailbox: bytes = b""
) -> None:
    """A firmware command, carried out or refused."""
    sender.host()
    record = sender.log.record
    if mailbox:
        size = len(mailbox)
        record(A, Kind.DMA_READ, 0, 0x600000, size, mailbox, What.MAILBOX_IN, Opcode[name])
    text = f"{name} op_mod=0 in_mod={qpn:#x} in=0x600000 {status} 12 us".encode()
    record(A, Kind.COMMAND, 0, 0, len(text), text, What.OTHER, 0)


def bring_up(sender: Sender, service: ServiceType = ServiceType.RC) -> None:
    """From RST to RTS."""
    context = QPC.pack(service=service, log_sq_size=6, log_rq_size=4)
    for name in UP:
        command(sender, name, mailbox=bytes(QPC_MAILBOX_OFFSET) + bytes(context))


def failed_send(sender: Sender) -> None:
    """The completion of a send that failed."""
    entry = bytes(
        cqe.ERROR_CQE.pack(
            qpn=QPN, wqe_index=sender.index & 0xFFFF, is_send=1, opcode=cqe.OPCODE_ERROR,
            syndrome=cqe.CompletionStatus.REMOTE_ACCESS_ERR,
        )
    )  # fmt: skip
    sender.log.record(A, Kind.DMA_WRITE, 0, 0x400000, 32, entry, What.CQE, CQN)
