"""The fields of a step by name, and the reference that their names lead to."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout import reference
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4 import wqe
from bluebridge.host_tools import cli
from bluebridge.host_tools.analyzer.event_lines import named_fields
from bluebridge.host_tools.web.app import reference_page
from tests.models.analysis_log import Sender, posted
from tests.unit.web.browser import browser
from tests.unit.web.web_site import served


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """One RDMA WRITE of 100 bytes whose completion is announced."""
    return posted(tmp_path / "log", size=100, inline=False, announced=True)


def test_fields_have_the_values_of_the_bytes(log: Path) -> None:
    events = list(LogReader(log))
    values = {
        f"{each.table.name}.{each.name}": each.value
        for event in events
        for each in named_fields(event)
    }
    assert values["RADDR.va"] == "0x300000" and values["RADDR.rkey"] == "7"
    assert values["DATA.byte_count"] == "0x64" and values["DATA.lkey"] == "5"
    assert values["CQE.qpn"] == "0x48" and values["CQE.byte_count"] == "0x64"
    assert values["EQE.COMP.cqn"] == "0x80"
    doorbell = next(each for each in events if each.kind is Kind.MMIO_WRITE)
    assert next(named_fields(doorbell)).table.name == "UAR"


def test_the_table_lists_them_by_name(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each under its transaction, with the page that explains it; JSON has the values."""
    assert cli.main(["log", str(log), "--view", "table", "--tree"]) == 0
    lines = capsys.readouterr().out.splitlines()
    read = next(at for at, line in enumerate(lines) if "WQE read of QP 0x48" in line)
    rkey = next(line for line in lines[read:] if "RADDR.rkey" in line)
    assert rkey.split() == ["RADDR.rkey", "7", "remote", "key", "(registers-mlx4-wqe.html)"]
    assert not any("CTRL.fence" in line for line in lines)  # it is 0
    assert cli.main(["log", str(log), "--view", "table", "--tree", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert next(row for row in rows if row["role"] == "WQE read")["fields"]["RADDR.rkey"] == "7"
    assert cli.main(["log", str(log), "--view", "table"]) == 0
    assert "RADDR.rkey" not in capsys.readouterr().out


def test_each_piece_of_a_gather_list_has_its_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sender = Sender(tmp_path / "log")
    entry = bytearray(sender.entry(100, inline=False, blueflame=False))
    entry += wqe.DATA.pack(byte_count=32, lkey=6, va=0x2000)
    entry[7] = len(entry) // 16
    sender.doorbell()
    sender.fetch(bytes(entry))
    sender.log.close()
    assert cli.main(["log", str(tmp_path / "log"), "--view", "table", "--tree"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [words[1] for words in lines if words[:1] == ["DATA.lkey"]] == ["5", "6"]


def test_bytes_that_were_not_kept_have_no_fields(log: Path) -> None:
    event = next(each for each in LogReader(log) if each.what is What.SQ_WQE)
    names = [each.name for each in named_fields(event)]
    event.data = event.data[:20]
    assert 0 < len(list(named_fields(event))) < len(names)
    event.data = b""
    assert list(named_fields(event)) == []


def test_every_table_has_a_subject_and_its_fields_a_row() -> None:
    """A link of any field leads to a row that there is."""
    for subject in reference.pages():
        text = reference_page(subject)
        assert text is not None and text.count("<table>") == text.count("</table>") > 0
    for short, _, own in reference.tables():
        for table in own:
            text = reference_page(reference.subjects()[id(table)]) or ""
            items = table.fields if hasattr(table, "fields") else table.registers
            assert all(f'id="{table.name}.{item.name}"' in text for item in items), short
    assert reference_page("nothing") is None


def test_the_page_shows_them_and_leads_to_the_reference(log: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as chromium, served(log) as address:
        chromium.open(address)
        chromium.wait("document.getElementById('fields').innerText.includes('UAR.')")
        chromium.click("#on")
        chromium.wait("document.getElementById('fields').innerText.includes('RADDR.rkey')")
        assert "CTRL.fence" not in chromium.text("fields")  # it is 0
        chromium.click("#zeros")
        assert "CTRL.fence" in chromium.text("fields")
        links = "[...document.querySelectorAll('#fields a')]"
        link = chromium.run(f"{links}.find(a => a.innerText == 'RADDR.rkey').href")
        chromium.open(link)
        chromium.wait("document.querySelector('tr:target').innerText.includes('rkey')")
        assert chromium.errors == []
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}fields/1000000")
        told = json.load(urllib.request.urlopen(f"{address}fields/1"))["fields"]
        assert all(re.fullmatch(r"reference/mlx4-wqe#\w+\.\w+", each["link"]) for each in told)
        chromium.open("about:blank")


def test_the_bits_of_a_register_have_names_of_their_own() -> None:
    """In JSON they would hide each other, and the register, otherwise."""
    go = Event(1, 0.0, "a", Kind.MMIO_WRITE, 0, What.OTHER, 0, 0x80698, 4, b"\0\x80\0\x1b")
    found = {each.name: each.value for each in named_fields(go)}
    assert found["control"] == "0x80001b"
    assert (found["control.go"], found["control.opcode"]) == ("1", "0x1b")
