"""`bluebridge web --compare`: two logs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.host_tools import cli
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind, activities
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction
from bluebridge.host_tools.web.lab import Lab
from bluebridge.host_tools.web.side_by_side import Line, SideBySide, lines, paired
from tests.models.analysis_log import Sender
from tests.unit.web.browser import browser
from tests.unit.web.web_site import serving


def _line(title: str, status: str = "OK", at: float = 0.0, device: str = "a") -> Line:
    one = Transaction(0, at, device, Tlp.NONE, Role.COMMAND, True, 0, 0, b"")
    (line,) = lines([Activity(0, ActivityKind.COMMAND, device, title, at, at, status, [one])])
    return line


def _said(pairs: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    titles = [[each[side] and each[side]["title"] for side in ("one", "other")] for each in pairs]
    return [(a or "", b or "", each["same"]) for (a, b), each in zip(titles, pairs, strict=True)]


def _told(folder: Path, qpn: int, port: int) -> list[Line]:
    sender = Sender(folder)
    sender.post(8)
    sender.command("RST2INIT_QP", in_mod=qpn)
    sender.tell(Fact.WORK_REFUSED, qpn=qpn, index=3, reason="why")
    sender.command("SET_PORT", in_mod=port)
    sender.log.close()
    return lines(sorted(activities(folder), key=lambda each: each.number))


def test_numbers_that_a_run_draws_are_no_difference(tmp_path: Path) -> None:
    """Of queue pairs in commands, in what the device told, and keys in lines."""
    one, other = _told(tmp_path / "x", 0x48, 1), _told(tmp_path / "y", 0x2DBDED, 2)
    assert [each["same"] for each in paired(one, other)] == [True, True, True, False]
    assert all(each["same"] for each in paired([_line("MAP rkey=0x8")], [_line("MAP rkey=0x9")]))


def test_what_one_log_has_more_stands_alone() -> None:
    one = [_line("A"), _line("B"), _line("C")]
    other = [_line("A"), _line("C", "BAD_PARAM"), _line("D")]
    assert _said(paired(one, other)) == [
        ("A", "A", True), ("B", "", False), ("C", "C", False), ("", "D", False)
    ]  # fmt: skip


def test_functions_do_not_wait_for_one_another() -> None:
    one = [_line("A", at=1), _line("X", at=2, device="b"), _line("B", at=3)]
    other = [_line("X", at=1, device="b"), _line("A", at=2), _line("B", at=3)]
    assert _said(paired(one, other)) == [("A", "A", True), ("X", "X", True), ("B", "B", True)]


def _log(folder: Path, *, failing: bool) -> Lab:
    sender = Sender(folder)
    sender.post(8)
    status = "BAD_PARAM" if failing else "OK"
    for name in ("MAP_FA", "DUMP_ETH_STATS", "<b>RUN_FW</b>"):
        sender.command(name, status if name == "MAP_FA" else "OK")
    sender.log.close()
    return Lab(LogReader(folder), folder.name)


def test_the_page_marks_the_first_difference_and_leads_to_it(tmp_path: Path) -> None:
    """A link opens that moment in the page of its log; markup is text; polling is left out."""
    site = SideBySide(_log(tmp_path / "good", failing=False), _log(tmp_path / "bad", failing=True))
    with browser(tmp_path) as chromium, serving(site.application()) as address:
        chromium.open(address)
        chromium.wait("document.getElementById('first') !== null")
        assert chromium.text("state") == "1 of 3 differ"
        first = chromium.text("first")
        assert "first difference" in first and "MAP_FA" in first and "BAD_PARAM" in first
        assert "DUMP_ETH_STATS" not in chromium.text("rows")
        assert "<b>RUN_FW</b>" in chromium.text("rows")
        assert chromium.run("document.querySelectorAll('#rows b').length") == 0
        chromium.click("#only")
        assert chromium.run("document.getElementById('rows').rows.length") == 1
        chromium.open(
            address + chromium.run("document.querySelector('#first a').getAttribute('href')")
        )
        chromium.wait("document.getElementById('chosen').innerText.includes('MAP_FA')")
        chromium.open("about:blank")
        assert chromium.errors == []


@pytest.mark.parametrize("words", [["--save", "x.html"], ["DIR"], ["--profile", "system-x"]])
def test_a_comparison_has_two_logs_only(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["web", *words, "--compare", str(tmp_path), str(tmp_path)]) == 2
    assert "--compare has two logs" in capsys.readouterr().err


def test_a_folder_without_a_log_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["web", "--compare", str(tmp_path), str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
