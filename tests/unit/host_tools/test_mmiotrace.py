"""The guest kernel's record of register accesses, read and held against a bus log."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.host_tools import cli
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.mmiotrace.trace import Access, Window, compare, parse

HEAD = """\
VERSION 20070824
PCIDEV 0008 1b36000c 15 fea00000 0 0 0 0 0 0 1000 0 0 0 0 0 0 pcieport
PCIDEV 0100 15b31003 0 fda00004 0 fb9000000c 0 0 0 0 100000 0 1000000 0 0 0 0 mlx4_core
MAP 1.0 1 0xfda80000 0xffffc9000009d000 0x6a0 0x0 0
MAP 1.1 2 0xfb90080000 0xffffc90000100000 0x1000 0x0 0
MAP 1.2 3 0xfb90800000 0xffffc90001000000 0x800000 0x0 0
MAP 1.3 4 0xfda7c000 0xffffc90000105000 0x200 0x0 0
"""
BODY = """\
R 4 2.0 1 0xfda80698 0x4002000 0x0 0
W 4 2.1 1 0xfda80694 0xffff 0x0 0
W 2 2.2 4 0xfda7c00c 0x1 0x0 0
W 8 2.3 3 0xfb90880040 0x1122334455667788 0x0 0
R 4 2.4 9 0xfea00010 0x7 0x0 0
W 1 2.5 2 0xfb90080014 0xffffff42 0x0 0
"""
LOG = [
    Access(False, 0, 0x80698, bytes.fromhex("00200004")),
    Access(True, 0, 0x80694, bytes.fromhex("ffff0000")),
    Access(True, 2, 0x880040, bytes.fromhex("8877665544332211")),
    Access(True, 2, 0x80014, b"\x42"),
]
BY_USER = [Access(True, 2, 0x81014, b"\x01"), Access(True, 2, 0x881000, b"\x02")]


def test_a_trace_is_read_as_accesses_of_the_adapters_bars() -> None:
    trace = parse(HEAD + BODY)
    assert [each for each in trace.accesses if each.bar or each.offset >= 0x80000] == LOG
    assert trace.windows[0] == Window(0, 0x80000, 0x6A0)


def test_two_equal_records_match() -> None:
    mixed = [BY_USER[0], *LOG[:3], BY_USER[1], LOG[3]]
    verdict = compare(parse(HEAD + BODY), mixed)
    assert verdict.same
    assert (verdict.matched, verdict.table, verdict.user, verdict.unseen) == (4, 1, 2, 0)
    assert "all 4 match, in order" in verdict.text()


@pytest.mark.parametrize(
    ("log", "matched", "said"),
    [
        ([LOG[1], LOG[0], *LOG[2:]], 0, "* 1: kernel read "),
        ([*LOG[:3], Access(True, 2, 0x80014, b"\x43")], 3, "42 | log write BAR2+0x80014"),
        (LOG[:3], 3, "| log nothing"),
        ([*LOG, LOG[0]], 4, "* 5: kernel nothing | log read  BAR0"),
    ],
)
def test_the_first_difference_is_shown(log: list[Access], matched: int, said: str) -> None:
    verdict = compare(parse(HEAD + BODY), log)
    assert not verdict.same
    assert verdict.matched == matched
    assert said in verdict.text()


def test_what_a_tracer_does_not_record_is_left_out() -> None:
    """Of a mapping that begins inside a page Linux 6.12 records nothing."""
    head = HEAD.replace("0xfda80000 0xffffc9000009d000 0x6a0", "0xfda80680 0xffffc680 0x1c")
    verdict = compare(parse(head + BODY.split("\n", 2)[2]), LOG)
    assert verdict.same
    assert verdict.unseen == 2


def test_an_access_the_tracer_could_not_read_is_a_difference() -> None:
    strange = "UNKNOWN 2.6 1 0xfda80680 f3,a5,00 0x0 0\n"
    verdict = compare(parse(HEAD + BODY + strange), LOG)
    assert not verdict.same
    assert "f3,a5,00" in verdict.text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("R 4 2.0 1 0xfda80698 0x4 0x0 0\n", "no trace of a ConnectX-3"),
        (HEAD + "MARK 0.000000 Lost 17 events.\n", "Lost 17 events"),
    ],
)
def test_useless_traces_are_one_line(text: str, said: str) -> None:
    with pytest.raises(LabError, match=said) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_the_command_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace"
    assert cli.main(["mmiotrace", "--compare", str(trace), str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("bluebridge: cannot read")
    trace.write_text(HEAD + BODY)
    assert cli.main(["mmiotrace", "--compare", str(trace), str(tmp_path)]) == 2
    assert "holds no bus log" in capsys.readouterr().err
