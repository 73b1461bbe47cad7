"""Finds one RDMA write of NTRDMA in the bus log and shows it as the analyzer does."""

from __future__ import annotations

import time
from pathlib import Path

from bluebridge.device.buslog.reader import LogError
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.host_tools.analyzer.analysis import Transfer, transfers
from bluebridge.host_tools.analyzer.views.work_requests import header, line, tree
from bluebridge.host_tools.errors import LabError

EXPLANATION = (
    "The sender's engine copies the data, the send ring's new entry, the ring's index and a",
    "virtual doorbell into the peer's memory, then stores the peer's interrupt message. The peer's",
    "engine copies the completion, its ring's index and a doorbell back, and interrupts.",
)
PAYLOAD = 8
_PATIENCE = 20.0
_PAUSE = 0.5


def lines(logs: Path, sender: str) -> list[str]:
    """Return the last write of `PAYLOAD` bytes that guest `sender` posted, with its transactions.

    Raises `LabError` when the log has none after a while; the latest events may not be written yet.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            found = last(logs, sender)
        except LogError as error:
            raise LabError(f"no bus log: {error}") from error
        if found is not None:
            return [*header(None), line(found, None), *tree(found, None)]
        if time.monotonic() > deadline:
            raise LabError("the bus log has no RDMA write", f"read it: {logs}")
        time.sleep(_PAUSE)


def last(logs: Path, sender: str) -> Transfer | None:
    """Return the sender's last answered write, if possible one that shares no transaction."""
    found: Transfer | None = None
    for transfer in transfers(logs):
        if transfer.device == sender and _is_write(transfer):
            alone = not any(one.repeated for one in transfer.transactions)
            found = transfer if alone or found is None else found
    return found


def _is_write(transfer: Transfer) -> bool:
    return (
        transfer.opcode == WorkCode.WRITE.name
        and transfer.length == PAYLOAD
        and transfer.status == WorkStatus.OK.name
    )
