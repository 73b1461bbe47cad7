"""The vendor syndromes of completions in error, against what owners of cards published."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout.ibverbs import WC_STATUSES
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.cqe import ERROR_CQE, FAILURES
from bluebridge.device.server.control import ControlCommands
from bluebridge.guest.verbs.enums import WcStatus
from tests.models.rdma_node import Pair, SendOpcode, TestQp, data, remote

PUBLISHED = {
    "LOC_LEN_ERR": 0x68, "LOC_QP_OP_ERR": 0x68, "LOC_PROT_ERR": 0x52, "WR_FLUSH_ERR": 0xF9,
    "MW_BIND_ERR": 0x78, "REM_INV_REQ_ERR": 0x8A, "REM_ACCESS_ERR": 0x88, "REM_OP_ERR": 0x89,
    "RETRY_EXC_ERR": 0x81, "RNR_RETRY_EXC_ERR": 0x87, "REM_ABORT_ERR": 0x93,
}  # fmt: skip
OURS = {"BAD_RESP_ERR": 0x77, "LOC_ACCESS_ERR": 0x77}


def wrong_key(pair: Pair) -> TestQp:
    source, key = pair.a.memory(4096)
    target, rkey = pair.b.memory(4096)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(target, rkey ^ 1) + data((key, source, 4)))
    return pair.qa


def wrong_local_key(pair: Pair) -> TestQp:
    pair.post_send(SendOpcode.SEND, data((0x77700, 0x1000, 4)))
    return pair.qa


def unknown_operation(pair: Pair) -> TestQp:
    pair.post_send(0x1F)
    return pair.qa


def longer_than_the_receive(pair: Pair) -> TestQp:
    source, key = pair.a.memory(4096)
    pair.post_recv([])
    pair.post_send(SendOpcode.SEND, data((key, source, 4)))
    return pair.qa


def receive_too_short(pair: Pair) -> TestQp:
    longer_than_the_receive(pair)
    return pair.qb


def peer_is_gone(pair: Pair) -> TestQp:
    pair.b.command(Opcode.TORST_QP, 3, pair.qb.qpn)
    pair.post_send(SendOpcode.SEND)
    return pair.qa


def no_receive(pair: Pair) -> TestQp:
    pair.post_send(SendOpcode.SEND)
    return pair.qa


def peer_has_a_bad_receive(pair: Pair) -> TestQp:
    source, key = pair.a.memory(4096)
    pair.post_recv([(0x77700, 0x1000, 4)])
    pair.post_send(SendOpcode.SEND, data((key, source, 4)))
    return pair.qa


def flushed(pair: Pair) -> TestQp:
    pair.post_recv([])
    pair.b.command(Opcode.TOERR_QP, 0, pair.qb.qpn)
    return pair.qb


@pytest.mark.parametrize(
    ("fail", "status"),
    [
        (wrong_key, "REM_ACCESS_ERR"), (wrong_local_key, "LOC_PROT_ERR"),
        (unknown_operation, "LOC_QP_OP_ERR"), (longer_than_the_receive, "REM_INV_REQ_ERR"),
        (receive_too_short, "LOC_LEN_ERR"), (peer_is_gone, "RETRY_EXC_ERR"),
        (no_receive, "RNR_RETRY_EXC_ERR"), (peer_has_a_bad_receive, "REM_OP_ERR"),
        (flushed, "WR_FLUSH_ERR"),
    ],
)  # fmt: skip
def test_work_that_fails_says_what_a_card_says(fail: Callable[[Pair], TestQp], status: str) -> None:
    pair = Pair().connect(rts={"rnr_retry": 0})
    qp = fail(pair)
    pair.run(1.0)
    raw = (pair.a if qp is pair.qa else pair.b).completions(qp)[0].raw
    syndrome, vendor = ERROR_CQE.get(raw, "syndrome"), ERROR_CQE.get(raw, "vendor_syndrome")
    assert ({int(code): each.verbs for code, each in FAILURES.items()}[syndrome], vendor) == (
        status, PUBLISHED[status],
    )  # fmt: skip


def test_the_table_says_what_was_published_and_what_is_ours() -> None:
    found = {each.verbs: each.vendor_syndrome for each in FAILURES.values()}
    assert found == PUBLISHED | OURS
    assert all(("chosen here" in each.source) == (each.verbs in OURS) for each in FAILURES.values())


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs/faults.md").read_text()
    rows = re.findall(r"^\| (0x\w\w) \| (\w+_ERR) \| (0x\w\w) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [
        (f"{int(status):#04x}", each.verbs, f"{each.vendor_syndrome:#04x}", each.source)
        for status, each in FAILURES.items()
    ]


def test_statuses_have_the_names_and_numbers_of_verbs() -> None:
    assert {each.verbs for each in FAILURES.values()} <= set(WC_STATUSES)
    assert all(WC_STATUSES[status] == status.name for status in WcStatus)


@pytest.mark.parametrize(
    ("words", "vendor"), [("", 0x88), (" vendor=0x3", 3), (" vendor=255", 255)]
)
def test_a_fault_says_the_vendor_syndrome_too_or_another_one(words: str, vendor: int) -> None:
    pair = Pair().connect()
    commands = ControlCommands({"a": pair.a.hca}, FaultRules(pair.a.host.call_later, EventLog()))
    assert commands.execute(f"arm a wc-rem-access-err qpn={pair.qa.qpn}{words}")[-1] == "ok"
    pair.post_recv([])
    pair.post_send(SendOpcode.SEND)
    pair.run(0.01)
    (wc,) = pair.a.completions(pair.qa)
    assert ERROR_CQE.get(wc.raw, "vendor_syndrome") == vendor
    (answer,) = commands.execute("arm a wc-rem-access-err vendor=256")
    assert answer == "error: vendor=256: write a number from 0 to 255, or 0x..."
