"""Tests of what `bluebridge show` makes of the device server's rows: names, tables, differences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.mlx4.contexts import (
    CQC_SIZE,
    EQC_SIZE,
    MPT_SIZE,
    QPC,
    QPC_SIZE,
    SRQC_SIZE,
)
from bluebridge.device.mlx4.memory.protection_table import region_of_entry
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.show import region_row
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.show import text
from bluebridge.host_tools.show.ports import PORTS
from bluebridge.host_tools.show.queues import CQ, EQ, MR, QP, SRQ
from bluebridge.host_tools.show.registers import CONFIG, REGS
from bluebridge.host_tools.show.show_command import ask
from bluebridge.host_tools.show.text import Item, Kind, Row

GID = bytes.fromhex("00000000000000000000ffff0a090002")


def qp_row(lqpn: int = 73, state: str = "RTS") -> Row:
    """A connected queue pair as the server tells it."""
    context = QPC.pack(
        remote_qpn=74, mtu=5, next_send_psn=0x100, next_recv_psn=0x200, pd=3, cqn_send=128,
        cqn_recv=129, pri_ack_timeout=14, retry_count=7, rnr_retry=6, pri_rgid=GID, remote_write=1,
        pm_state=3,
    )  # fmt: skip
    return {
        "function": "a", "lqpn": lqpn, "type": "RC", "state": state, "unacked": 2,
        "oldest-unacked": 5, "retries": 1, "rnr-retries": 0, "waits-to-retry": False,
        "sq-size": 64, "sq-next": 7, "sq-rung": True, "rq-size": 512, "rq-posted": 9,
        "rq-taken": 4, "context": bytes(context).hex(),
    }  # fmt: skip


def qp(lqpn: int = 73, state: str = "RTS") -> Item:
    """Its page."""
    (item,) = QP.items(qp_row(lqpn, state))
    return item


def test_a_queue_pair_with_the_names_of_rdma_res() -> None:
    item = qp()
    assert [item[name] for name in ("lqpn", "rqpn", "type", "state", "rq-psn", "sq-psn")] == [
        73, 74, "RC", "RTS", 0x200, 0x100
    ]  # fmt: skip
    assert (item["path-mtu"], item["gid"], item["access"]) == (
        4096, "::ffff:10.9.0.2", ["REMOTE_WRITE"]
    )  # fmt: skip
    assert (item["rq-posted"], item["rq-taken"], item["unacked"]) == (9, 4, 2)
    assert (item["timeout"], item["retry-cnt"], item["rnr-retry"]) == (14, 7, 6)
    assert (item["path-mig-state"], item["srqn"]) == ("MIGRATED", None)


def test_numbers_of_queues_keys_and_psns_are_written_as_in_the_log() -> None:
    head, row = (line.split() for line in text.table(QP, [qp(520)], None))
    told = dict(zip(head, row, strict=False))
    assert [told[name] for name in ("lqpn", "rqpn", "rq-psn", "sq-psn", "scqn")] == [
        "0x208", "0x4a", "0x200", "0x100", "0x80"
    ]  # fmt: skip


def test_a_table_is_as_wide_as_wanted() -> None:
    items = [qp(), qp(1000, "INIT")]
    head, first, second = text.table(QP, items, None)
    assert head.split()[:4] == ["lqpn", "rqpn", "type", "state"]
    assert first.split()[:4] == ["0x49", "0x4a", "RC", "RTS"]
    assert second.split()[:4] == ["0x3e8", "0x4a", "RC", "INIT"]
    assert "::ffff:10.9.0.2" in first
    assert "srqn" not in head  # nobody has one
    *lines, left = text.table(QP, items, 40)
    assert all(len(line) <= 40 for line in lines)
    assert "gid" in left
    assert list(text.table(QP, items, 1))[1] == "0x49"  # one column at least


def test_functions_are_named_where_there_are_several() -> None:
    head, *_ = text.table(QP, [qp(), {**qp(), "function": "a.1"}], None)
    assert head.split()[0] == "function"


def test_a_page_of_one() -> None:
    title, *lines = text.page(QP, qp())
    assert title == "a qp 0x49"
    assert ["gid", "::ffff:10.9.0.2"] in [line.split() for line in lines]


def test_differences_between_two_moments() -> None:
    before = [qp(1, "RTR"), qp(2), qp(3)]
    after = [qp(1, "RTS"), qp(3), qp(4)]
    found = text.differences(QP, before, after)
    assert list(text.lines(QP, found)) == [
        "a qp 0x1: state RTR -> RTS",
        "a qp 0x2: gone",
        "a qp 0x4: new",
    ]
    assert [each["change"] for each in text.document(found)] == ["changed", "gone", "new"]
    assert text.differences(QP, before, before) == []


def test_only_a_file_of_the_same_question_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text(json.dumps({"name": "a", "what": "qp", "items": [qp()]}))
    assert text.load(path, QP, "a") == [qp()]
    for name, kind in (("b", QP), ("a", REGS)):
        with pytest.raises(UsageError, match="same question"):
            text.load(path, kind, name)
    for nonsense in ("", "[]", "{}", "\xff"):
        path.write_text(nonsense)
        with pytest.raises(UsageError, match="no file of --save"):
            text.load(path, QP, "a")


def test_questions_follow_until_the_answer_ends() -> None:
    asked = []

    def tell(line: str) -> list[str]:
        asked.append(line)
        more = [json.dumps({"more": 7})] if len(asked) == 1 else []
        head = [json.dumps({"functions": [{"name": "a", "count": 2}]})] if len(asked) == 1 else []
        return [*head, json.dumps(qp_row(90 - len(asked))), *more]

    answer = ask(tell, "a", QP, None)
    assert asked == ["show a qp", "show a qp more 7"]
    assert [item["lqpn"] for item in answer.items] == [88, 89]
    assert answer.functions == [{"name": "a", "count": 2}]


def _any(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


@given(qpc=_any(QPC_SIZE), cqc=_any(CQC_SIZE), srqc=_any(SRQC_SIZE), eqc=_any(EQC_SIZE))
def test_whatever_a_guest_wrote_into_a_context(
    qpc: bytes, cqc: bytes, srqc: bytes, eqc: bytes
) -> None:
    ring = {"function": "a", "size": 1, "producer": 2, "consumer": 3}
    rows: dict[Kind, Row] = {
        QP: {**qp_row(), "context": qpc.hex()},
        CQ: ring | {"cqn": 1, "context": cqc.hex(), "armed": 0, "broken": False},
        SRQ: ring | {"srqn": 1, "context": srqc.hex(), "next-entry": 0},
        EQ: ring | {"eqn": 1, "context": eqc.hex(), "backlog": 0, "overflowed": False},
    }
    for kind, row in rows.items():
        (item,) = kind.items(row)
        assert list(text.page(kind, item))
        assert len(list(text.table(kind, [item], None))) == 2
        assert json.dumps(item)


def test_numbers_of_queues_are_written_as_in_the_log() -> None:
    """`0x208`, wherever the number of a QP, CQ or SRQ stands; NUMBER may be given in both ways."""
    assert text.cell(qp()["lqpn"], hexadecimal=True) == "0x49"
    wanted = {
        QP: {"lqpn", "rqpn", "scqn", "rcqn", "srqn", "qkey"},
        CQ: {"cqn"},
        SRQ: {"srqn", "cqn"},
        MR: {"rkey", "lkey", "lqpn"},
        PORTS: {"qp0", "steering"},
    }
    for kind, names in wanted.items():
        item = {"function": "a", **dict.fromkeys((*kind.keys, *names), 520)}
        lines = list(text.page(kind, item | {"steering": {"default": 520}}))
        shown = [line for line in lines if any(name in line.split() for name in names)]
        assert len(shown) == len(names - {*kind.keys})
        assert all(line.endswith("0x208") for line in shown)
        assert text.title(kind, item).endswith("0x208" if kind is not PORTS else " 520")
    before, after = ({"function": "a", "port": 1, "steering": {"default": n}} for n in (1, 520))
    (line,) = text.lines(PORTS, text.differences(PORTS, [before], [after]))
    assert line == "a ports 1: steering.default 0x1 -> 0x208"


@given(entry=_any(MPT_SIZE))
def test_whatever_a_guest_wrote_into_a_protection_entry(entry: bytes) -> None:
    checked = entry[:0x2B] + b"\0" + entry[0x2C:0x3C] + bytes(4)  # what must be zero is
    try:
        rows = region_row(region_of_entry(0, checked, 0), checked)
    except CommandError:  # a window and an MR at once
        return
    (item,) = MR.items({"function": "a", **rows})
    assert len("".join(text.page(MR, item))) < 2000


def config_row() -> Row:
    """A function with a power management capability, and one that nobody knows."""
    raw = bytearray(256)
    raw[0:6] = bytes.fromhex("b31503100600")
    raw[0x06], raw[0x34] = 0x10, 0x40
    raw[0x10:0x18] = (0xFEA0_0000 | 4).to_bytes(8, "little")
    raw[0x40:0x48] = bytes.fromhex("0150030008000000")
    raw[0x50:0x52] = bytes.fromhex("0940")  # and a chain without an end
    return {"function": "a", "config": bytes(raw).hex(), "bars": {"0": 1 << 20}}


def test_config_space_with_the_names_of_lspci() -> None:
    items = {item["register"]: item["value"] for item in CONFIG.items(config_row())}
    assert items["Device"].startswith("15b3:1003")
    assert "Mem+ BusMaster+" in items["Control"]
    assert items["Region 0"] == "Memory at fea00000 (64-bit, non-prefetchable) [size=1M]"
    assert items["[40] Power Management"] == "version 3"
    assert items["[40] Status"] == "D0 NoSoftRst+"
    assert items["[50] Capability"] == "0x09"


def test_a_register_by_an_offset_inside_of_it() -> None:
    head = {"functions": [{"name": "a", "count": 1}]}

    def tell(_: str) -> list[str]:
        return [json.dumps(head), json.dumps(config_row())]

    assert [item["offset"] for item in ask(tell, "a", CONFIG, "0x12").items] == [0x10]


def test_a_register_of_a_bridge() -> None:
    line = bytes.fromhex("54010000").ljust(64, b"\0").hex()
    row = {"function": "a.ntb4", "model": "intel-gen4", "lines": {"0": line}}
    items = {item["register"]: item for item in REGS.items(row)}
    assert items["NTB4.control"]["value"] == "0x00000154"
    assert "SPAD[0].spad" not in items  # zeros of repeated registers say nothing
