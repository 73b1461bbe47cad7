"""Tests of fingerprints: the format with its bounds, and how differences are named."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from bluebridge.device.layout.mlx5.caps import GENERAL, QUERY_CAP_OFFSET, CapGroup
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.fingerprint import document, fingerprint_command
from bluebridge.host_tools.fingerprint.comparison import compare

SCRIPT = Path(fingerprint_command.__file__).parent / fingerprint_command.SCRIPT
HEADER = "b3 15 17 10 06 04 10 00 00 00 00 02 00 00 00 00"


def text(*lines: str) -> str:
    return "\n".join([document.FIRST_LINE, "[about]", "kernel = 6.12", *lines, ""])


def capabilities(mode: int, **fields: int) -> list[str]:
    """The rows of a group as the script prints them: without those that are zeros."""
    group = bytes(QUERY_CAP_OFFSET) + bytes(GENERAL.pack(**fields))
    rows = [(at, group[at : at + 16]) for at in range(0, len(group), 16)]
    return [
        f"QUERY_HCA_CAP {mode:04x} {at:03x} = {row.hex(' ', 4)}" for at, row in rows if any(row)
    ]


def differences(ours: str, theirs: str) -> list[tuple[str, str, str]]:
    found = compare(document.parse(ours), document.parse(theirs))
    return [(each.what, each.ours, each.theirs) for each in found.differences]


def test_a_text_is_read_and_written_again() -> None:
    whole = text("[config]", "bytes = 4096", f"000 = {HEADER}", "[empty]", "[ethtool]", "x = a = b")
    assert "\n".join([*document.lines(document.parse(whole)), ""]) == whole


@pytest.mark.parametrize(
    "wrong, why",
    [
        ("", "its first line"),
        ("x\n", "its first line"),
        (text("[pci]", "class"), "line 5 is neither"),
        (document.FIRST_LINE + "\nkey = value\n", "line 2 is neither"),
        (text("[pci]", "a = 1", "a = 2"), "line 6: a stands twice"),
        (text("[pci]", "[pci]"), "line 5: there are two sections [pci]"),
        (text("[config]", "000 = b3 15"), "[config] 000 is no row"),
        (text("[config]", f"zzz = {HEADER}"), "[config] zzz is no row"),
        (text("[capabilities]", "QUERY_HCA_CAP 0001 010 = 1"), "is no row of four words"),
        (text("[capabilities]", "QUERY_HCA_CAP 1 = 1"), "is no row of four words"),
    ],
)
def test_what_is_no_fingerprint_is_refused_in_one_line(
    wrong: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "card.txt").write_text(wrong)
    with pytest.raises(UsageError) as error:
        document.load(tmp_path / "card.txt")
    assert why in error.value.what and "\n" not in str(error.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large").write_bytes(b"a" * (document.MOST_BYTES + 1))
    for name, why in [("none", "No such file"), ("binary", "not text"), ("large", "more than"),
                      (".", "Is a directory")]:  # fmt: skip
        with pytest.raises(UsageError, match=why):
            document.load(tmp_path / name)


def test_values_differ_by_their_keys() -> None:
    ours = text("[ethtool -k]", "rx-gro-hw = off", "loopback = off", "highdma = on")
    theirs = text("[ethtool -k]", "rx-gro-hw = on", "highdma = on", "rx-all = off")
    assert differences(ours, theirs) == [
        ("rx-gro-hw", "off", "on"), ("loopback", "off", "absent"), ("rx-all", "absent", "off"),
    ]  # fmt: skip
    elsewhere = compare(document.parse(ours), document.parse(ours.replace("6.12", "6.1")))
    assert elsewhere.differences == []
    assert elsewhere.apart == [("about", "kernel 6.12", "kernel 6.1")]


def test_a_section_that_one_side_has_not_taken_is_told_and_does_not_count() -> None:
    ours = text("[registers]", "INIT.fw_rev = 0x1", "[devlink]", "not taken = no devlink")
    theirs = text("[devlink]", "driver = mlx5_core", "[rdma]", "not taken = x")
    found = compare(document.parse(ours), document.parse(theirs))
    assert found.differences == []
    assert found.apart == [
        ("registers", "taken", "has none"), ("devlink", "not taken: no devlink", "taken"),
        ("rdma", "has none", "not taken: x"),
    ]  # fmt: skip


def test_configuration_space_differs_by_the_names_of_its_registers() -> None:
    other = HEADER.replace("17 10", "19 10")
    mask = " ".join(["**"] * 16)
    ours = text("[config]", "bytes = 4096", f"000 = {HEADER}", f"010 = {mask}")
    theirs = text("[config]", "bytes = 256", f"000 = {other}", f"010 = {mask}", f"100 = {HEADER}")
    assert [what for what, *_ in differences(ours, theirs)] == ["bytes", "0x000 Device", "100"]


def test_capabilities_differ_by_their_fields() -> None:
    ours = text("[capabilities]", *capabilities(1, log_max_qp=17, xrc=1))
    theirs = text("[capabilities]", *capabilities(1, log_max_qp=18, xrc=1))
    assert differences(ours, theirs) == [("GENERAL current log_max_qp", "0x11", "0x12")]


def test_capabilities_without_a_name_differ_by_their_bits() -> None:
    empty = "00000000 00000000 00000000"
    ours = text("[capabilities]", f"QUERY_HCA_CAP 0000 200 = 80000001 {empty}")
    theirs = text("[capabilities]", f"QUERY_HCA_CAP 0000 200 = 00000001 {empty}")
    assert differences(ours, theirs) == [
        ("GENERAL maximal word 0x1f0, bits 0x80000000", "0x80000001", "0x00000001")
    ]


def test_a_group_that_one_driver_did_not_ask_for_is_one_difference() -> None:
    mode = CapGroup.ODP << 1
    ours = text("[capabilities]", *capabilities(1, xrc=1), *capabilities(mode, xrc=1))
    theirs = text("[capabilities]", *capabilities(1, xrc=1))
    assert differences(ours, theirs) == [("ODP maximal", "asked for", "not asked for")]


def test_two_files_are_compared_with_a_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text(text("[pci]", "revision = 0x00"))
    theirs.write_text(text("[pci]", "revision = 0x01\x1b"))
    options = argparse.Namespace(guest=None, taken=ours, reload=False, compare=ours, json=False)
    assert fingerprint_command.main(options) == 0
    assert capsys.readouterr().out == "no difference\n"
    options.compare = theirs
    assert fingerprint_command.main(options) == 1
    told = capsys.readouterr().out
    assert told.startswith("pci: revision: 0x00 in ") and "0x01\\x1b in " in told
    assert told.endswith("\n1 difference\n")
    options.json = True
    assert fingerprint_command.main(options) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["differences"] == [
        {"section": "pci", "what": "revision", "ours": "0x00", "theirs": "0x01\x1b"}
    ]


def test_guest_and_file_exclude_each_other(tmp_path: Path) -> None:
    for guest, taken, reload in [
        (None, None, False),
        ("a", tmp_path, False),
        (None, tmp_path, True),
    ]:
        options = argparse.Namespace(
            guest=guest, taken=taken, reload=reload, compare=None, json=False
        )
        with pytest.raises(UsageError):
            fingerprint_command.main(options)


def test_the_script_for_owners_is_short_and_says_that_there_is_no_such_card() -> None:
    assert len(SCRIPT.read_text().splitlines()) < 100
    done = subprocess.run(["sh", SCRIPT, "9999:00:00.0"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "fingerprint.sh: there is no such card at 9999:00:00.0\n"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_script_that_is_interrupted_gives_the_card_back(
    number: signal.Signals, tmp_path: Path
) -> None:
    """The script waits where this test has two pipes in sysfs, and lets the card go between."""
    card, driver = (
        tmp_path / "sys/bus/pci" / each for each in ("devices/0000:01:00.0", "drivers/mlx5_core")
    )
    for folder in (card, driver, tmp_path / "sys/bus/auxiliary", tmp_path / "sys/kernel/debug"):
        folder.mkdir(parents=True)
    (tmp_path / "sys/kernel/debug/dynamic_debug").mkdir()
    (card / "config").write_bytes(bytes(256))
    (card / "driver").symlink_to(driver)
    (driver / "bind").touch()
    unbind, probes = driver / "unbind", tmp_path / "sys/bus/auxiliary/drivers_autoprobe"
    for pipe in (unbind, probes):
        os.mkfifo(pipe)
    script = tmp_path / SCRIPT.name
    script.write_text(SCRIPT.read_text().replace("/sys/", f"{tmp_path}/sys/"))
    words: list[str | Path] = ["sh", script, "--reload", card.name]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        assert unbind.read_text() == f"{card.name}\n"
        (card / "driver").unlink()
        running.send_signal(number)
        taken = os.open(probes, os.O_RDONLY | os.O_NONBLOCK)
        running.wait(60)
        os.close(taken)
    assert (driver / "bind").read_text() == f"{card.name}\n"
