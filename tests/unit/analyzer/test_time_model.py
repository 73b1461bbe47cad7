"""The time model: profiles and errors in them, counts of store operations, the command."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.mlx4.uar import UAR_AREA_SIZE
from bluebridge.host_tools.analyzer.analysis import Role, Tlp, Transaction, Transfer
from bluebridge.host_tools.analyzer.model import ProfileError, built_in, load
from bluebridge.host_tools.analyzer.model.model import (
    NAMES,
    Stores,
    count,
    link_share,
    read_profile,
)
from bluebridge.host_tools.study import model_command as cli
from tests.models.analysis_log import Sender, posted

MINE = """\
name = "mine"
stores = "lines"
[microseconds]
base = 1
store = 0.5
write = 0.25
turn = 2
read = 1.5
completion = 0
"""


def entry(*lengths: int) -> Transfer:
    """A send whose entry was stored in adjacent lines of these lengths."""
    address = UAR_AREA_SIZE
    transfer = Transfer("a", 0x48, 0)
    for number, length in enumerate(lengths):
        line = Transaction(
            number, 0.0, "a", Tlp.MEMORY_WRITE, Role.BLUEFLAME, False, address, length, b""
        )
        transfer.transactions.append(line)
        address += length
    return transfer


def operations(transfer: Transfer, stores: Stores) -> int:
    """Number of store operations of a transfer."""
    return sum(each.store for each in count(transfer, stores) if each is not None)


@pytest.mark.parametrize(("lines", "blocks"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_adjacent_lines_share_a_store_block(lines: int, blocks: int) -> None:
    """Table 4.1: 64, 128, 64+128 and 128+128 bytes."""
    transfer = entry(*[64] * lines)
    assert operations(transfer, Stores.BLOCKS) == blocks
    assert operations(transfer, Stores.LINES) == lines


def test_separate_lines_share_no_store_block() -> None:
    transfer = entry(64, 64)
    transfer.transactions[1].address += 64
    assert operations(transfer, Stores.BLOCKS) == 2


def test_a_write_takes_its_share_of_the_link() -> None:
    assert link_share(64) == 1
    assert link_share(128) == 2
    assert link_share(4) == pytest.approx((24 + 4) / 88)
    assert link_share(0) == 0


def test_the_built_in_profiles() -> None:
    """Six constants each, and the round trip of figure 4.5 is near."""
    assert built_in() == ["system-x", "system-z"]
    assert len(NAMES) == 6
    assert read_profile("system-x").stores is Stores.LINES
    profile = read_profile("system-z")
    assert profile.stores is Stores.BLOCKS
    assert profile.us.read == pytest.approx(0.65, abs=0.1)


def test_a_profile_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    model = load(str(path))
    assert model.name == "mine"
    assert list(model.times(entry(64, 64))) == [0.75, 1.5]
    assert model.cpu(entry(64, 64)) == 1.5
    assert model.latency(Transfer("a", 1, 0)) == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("base = 1", "base = 1\nmore = 2", "more is not one of the 6 constants"),
        ("read = 1.5\n", "", "the constant read is missing in [microseconds]"),
        ("read = 1.5", "read = -1", "read = -1 is no number of microseconds"),
        ("read = 1.5", "read = nan", "read = nan is no number of microseconds"),
        ("read = 1.5", "read = true", "read = True is no number of microseconds"),
        ("read = 1.5", 'read = "fast"', "read = 'fast' is no number of microseconds"),
        ("read = 1.5", "read = ", "is no readable profile"),
        ('"lines"', '"pages"', 'stores must be "lines" or "blocks"'),
        ('stores = "lines"', "", 'stores must be "lines" or "blocks"'),
        ('name = "mine"', "name = 3", "name must be a word"),
        ("[microseconds]", "[times]", "times is not known"),
        (MINE, "", 'stores must be "lines" or "blocks"'),
        (MINE, 'stores = "lines"', "the table [microseconds]"),
        (MINE, "\xff", "is no readable profile"),
    ],
)
def test_a_profile_with_an_error(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(MINE.replace(old, new).encode("latin-1"))
    with pytest.raises(ProfileError) as caught:
        load(str(path))
    text = str(caught.value)
    assert said in text and str(path) in text and "\n" not in text


def run(*words: str) -> int:
    """The command's status."""
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return cli.main(parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "system-y", "{log}"], "no profile system-y: take system-x or system-z"),
        (["{log}/nowhere"], "holds no bus log"),
        ([], "no DIR"),
        (["--table", "4.1", "{log}"], "no RDMA WRITE of 1 to 28 bytes without BlueFlame"),
    ],
)
def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    FileLog(tmp_path / "log").close()
    assert run(*(word.format(log=tmp_path / "log") for word in words)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("bluebridge model: ") and printed.err.count("\n") == 1
    assert said in printed.err


def test_the_command_lists_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == built_in()
    assert lines and NAMES
    assert all(f"{name} " in line for line in lines for name in NAMES)


def test_a_row_whose_payloads_are_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its time is that of the few payloads that are there, which the table does not show."""
    folders = [tmp_path / by for by in ("doorbell", "blueflame")]
    for folder in folders:
        sender = Sender(folder)
        for size in (4, 192):
            sender.post(size, by=folder.name)
        sender.post(300, by="doorbell")
        sender.log.close()
    assert run("--table", "3.1", *map(str, folders)) == 0
    assert capsys.readouterr().err == (
        "row of 193 to 1024 bytes: the logs have only 300 bytes of it\n"
    )


def test_a_log_cut_short_is_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The complete part counts, and one line names the incomplete log."""
    posted(tmp_path, times=3)
    segment = next(tmp_path.glob("events-*.bin"))
    segment.write_bytes(segment.read_bytes()[:-1])
    assert run(str(tmp_path)) == 1
    printed = capsys.readouterr()
    assert "RDMA_WRITE" in printed.out
    assert printed.err == (
        f"{tmp_path}: the last event is cut short, its writer was killed; all before it counts\n"
    )


def test_a_completion_without_an_answer_follows_the_message(tmp_path: Path) -> None:
    """As with UC and Ethernet: nothing is modelled before its cause."""
    transfer = entry(64)
    for number, role in enumerate((Role.REQUEST, Role.CQE), 1):
        transfer.transactions.append(
            Transaction(number, 0.0, "a", Tlp.MEMORY_WRITE, role, True, 0, 32, b"")
        )
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    assert list(load(str(path)).times(transfer)) == [0.75, 1.75, 1.75]


def test_rows_of_several_logs_say_of_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        posted(Path(folder), size=64, by="doorbell")
    assert run(*folders) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [f"log {number}: {folder}" for number, folder in enumerate(folders, 1)] == lines[1:3]
    assert [line[:3] for line in lines if "RDMA_WRITE" in line] == ["  1", "  2"]
    assert run(*folders, "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["folder"] for row in rows] == folders
    assert all((row["payload"], row["sends"]) == (64, 1) for row in rows)
