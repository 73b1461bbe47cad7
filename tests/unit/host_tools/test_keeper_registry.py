"""The registry of pairs: numbers, locks, and what the dead leave behind."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.host_tools.commands import ps
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper import guests, record, registry
from bluebridge.host_tools.keeper.claims import Claim, claim_number, removed_at_end
from bluebridge.host_tools.keeper.record import GuestRecord, PairRecord, guest_names
from bluebridge.host_tools.keeper.registry import Lock


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty runtime root and an empty state root."""
    root = tmp_path / "r"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return root


@pytest.fixture
def claims() -> Iterator[list[Claim]]:
    """Claims to be let go at the end."""
    made: list[Claim] = []
    yield made
    for claim in made:
        claim.close()


def _tell(claim: Claim, **fields: str) -> PairRecord:
    pair = PairRecord(claim.number, [GuestRecord(name) for name in guest_names(claim.number)])
    for guest in pair.guests:
        guest.state = record.RUNNING
        guest.transcript = f"/logs/console-{guest.name}.log"
    pair.state = record.RUNNING
    for name, value in fields.items():
        setattr(pair, name, value)
    pair.write(claim.description)
    return pair


def test_names() -> None:
    assert [guest_names(number) for number in (1, 2, 10)] == [
        ("a", "b"),
        ("a2", "b2"),
        ("a10", "b10"),
    ]
    assert guest_names(2, 4) == ("a2", "b2", "c2", "d2")


def test_numbers_are_the_lowest_free_ones(claims: list[Claim]) -> None:
    claims += [claim_number() for _ in range(3)]
    assert [claim.number for claim in claims] == [1, 2, 3]
    claims[1].close()
    assert [entry.number for entry in registry.living()] == [1, 3]
    assert not claims[1].folder.exists(), "what has a free lock is cleared away"
    claims.append(claim_number())
    assert claims[-1].number == 2
    assert claims[-1].folder.stat().st_mode & 0o777 == 0o700


def test_what_others_made_is_left_alone(runtime: Path, claims: list[Claim]) -> None:
    strange = runtime / f"bluebridge-{os.getuid()}-1"
    strange.write_text("a file")
    (runtime / f"bluebridge-{os.getuid() + 1}-2").mkdir()
    (runtime / f"bluebridge-{os.getuid()}-x").mkdir()
    claims.append(claim_number())
    assert claims[0].number == 2
    assert len(registry.living()) == 1
    assert strange.read_text() == "a file"


def test_nobody_takes_all_numbers_of_another_user(
    monkeypatch: pytest.MonkeyPatch, claims: list[Claim]
) -> None:
    """Without a runtime folder pairs are in a private folder of /tmp, whoever takes its names."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with tempfile.TemporaryDirectory(prefix="t-") as short:  # a socket's path has 107 bytes
        monkeypatch.setattr(tempfile, "tempdir", short)
        folder, name = Path(short), f"bluebridge-{os.getuid()}"
        for number in range(1, 100):
            (folder / f"{name}-{number}").mkdir()
        (folder / name).mkdir(mode=0o755)
        (folder / f"{name}.1").write_text("")
        claims.append(claim_number())
        assert claims[0].folder == folder / f"{name}.2" / f"{name}-1"
        assert claims[0].folder.parent.stat().st_mode & 0o777 == 0o700
        (folder / f"{name}.1").unlink()
        assert [entry.folder for entry in registry.living()] == [claims[0].folder]


def test_what_blocks_is_named(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"bluebridge-{os.getuid()}"
    for number in range(1, 100):
        (runtime / f"{name}-{number}").write_text("")
    first = f"{runtime}/{name}-1 (of user {os.getuid()})"
    with pytest.raises(LabError) as refused:
        claim_number()
    assert str(refused.value) == (
        f"99 of the 99 numbers of pairs are taken by others, the first by {first}; "
        "set XDG_RUNTIME_DIR to a folder of your own"
    )
    assert ps.main(argparse.Namespace(json=False)) == 0
    assert (
        f"note: no pairs, but with the names of some: {first} and 98 more"
        in capsys.readouterr().out
    )
    assert len(list(runtime.iterdir())) == 99


def test_processes_claim_at_the_same_time(runtime: Path) -> None:
    script = (
        "from bluebridge.host_tools.keeper.claims import claim_number\n"
        "claim = claim_number()\n"
        "print(claim.number, flush=True)\n"
        "input()\n"
    )
    many = [
        subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(5)
    ]
    numbers = [int(each.stdout.readline()) for each in many if each.stdout is not None]
    assert sorted(numbers) == [1, 2, 3, 4, 5]
    for each in many:
        each.communicate(b"\n")
    assert registry.living() == []
    assert list(runtime.iterdir()) == []


def test_clearing_spares_a_newer_pair_of_the_same_number(claims: list[Claim]) -> None:
    first = claim_number()
    first.close()
    old = Lock(first.lock)
    first.clear()
    claims.append(claim_number())
    assert claims[0].folder == first.folder
    with old:
        assert old.take() and not old.named()
    first.clear()
    assert claims[0].alive() and claims[0].lock.exists()


def test_a_folder_too_long_for_sockets(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = runtime / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(LabError, match="set XDG_RUNTIME_DIR shorter"):
        claim_number()
    assert list(long.iterdir()) == []


def test_a_number_is_taken_until_the_folder_is_empty() -> None:
    claim = claim_number()
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from bluebridge.host_tools.keeper.claims import claim_number\n"
        "from bluebridge.host_tools.keeper.claims import removed_at_end\n"
        "claim = claim_number()\n"
        "with removed_at_end(claim):\n"
        "    print(claim.folder, flush=True)\n"
        "    input()\n"
    )
    keeper = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert keeper.stdout is not None
    folder = Path(keeper.stdout.readline().decode().strip())
    assert folder.name.endswith("-2") and folder.is_dir()
    keeper.kill()
    keeper.communicate()
    entry = registry.Entry(2, folder)
    while entry.alive():
        assert folder.exists() or not entry.alive()
    with contextlib.suppress(FileNotFoundError):
        while folder.exists():  # empty for a moment, when a claim may take its place
            assert not any(os.scandir(folder))
    with removed_at_end(claim):
        assert claim.alive()
    assert not claim.folder.exists()


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    pair = PairRecord(3, [GuestRecord("a3", devices=["HCA"], agents=["/x"]), GuestRecord("b3")])
    pair.modules = ["/m.ko"]
    pair.write(tmp_path / "pair.json")
    assert PairRecord.read(tmp_path / "pair.json") == pair
    assert pair.guest("b3").state == record.STARTING
    with pytest.raises(KeyError):
        pair.guest("a")


def test_a_record_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.mkdir()
    with pytest.raises(OSError, match=r"pair\.json") as caught:
        PairRecord(1, []).write(path)
    assert caught.value.filename == str(path)


def test_a_record_of_another_version(tmp_path: Path) -> None:
    pair = PairRecord(1, [GuestRecord("a"), GuestRecord("b")])
    pair.write(tmp_path / "pair.json")
    told = json.loads((tmp_path / "pair.json").read_text())
    told |= {"colour": "blue"}
    told["guests"][0] |= {"mood": "good"}
    del told["guests"][1]["remark"], told["warnings"]
    (tmp_path / "pair.json").write_text(json.dumps(told))
    assert PairRecord.read(tmp_path / "pair.json") == pair


# Guests.


def test_no_guest_runs() -> None:
    with pytest.raises(LabError, match="no guest runs; `bluebridge up` starts a pair"):
        guests.find("a")


def test_what_is_stopped_does_not_run(
    claims: list[Claim], capsys: pytest.CaptureFixture[str]
) -> None:
    claim = claim_number()
    claims.append(claim)
    pair = _tell(claim)
    with subprocess.Popen(["sleep", "1000"]) as process:
        pair.guests[0].pid = process.pid
        pair.guests[1].pid = os.getpid()
        pair.server = process.pid
        pair.write(claim.description)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        ps.main(argparse.Namespace(json=False))
        ps.main(argparse.Namespace(json=True))
        process.kill()
    said, _, rest = capsys.readouterr().out.partition("{")
    mend = f"{process.pid} was stopped; go on with: kill -CONT {process.pid}"
    assert f"pair {claim.number}  stopped: its server {mend}  up" in said
    assert f"  a    stopped: its QEMU {mend}\n  b    running  QEMU" in said
    (told,) = json.loads("{" + rest)["pairs"]
    assert [told["state"], *(each["state"] for each in told["guests"])] == [
        "stopped",
        "stopped",
        "running",
    ]


def test_an_unknown_guest(claims: list[Claim]) -> None:
    claims += [claim_number(), claim_number()]
    for claim in claims:
        _tell(claim)
    with pytest.raises(LabError, match="there is no guest c; these run: a, b, a2, b2"):
        guests.find("c")
    assert guests.find("b2").pair.number == 2


def test_a_guest_in_trouble(claims: list[Claim]) -> None:
    claims.append(claim_number())
    pair = _tell(claims[0])
    guest = guests.find("a")
    assert guest.trouble() is None
    pair.guest("a").state, pair.guest("a").why = record.ENDED, "it fell over"
    pair.write(claims[0].description)
    assert str(guest.trouble()) == (
        "guest a: it fell over; read /logs/console-a.log; `bluebridge restart a` brings it back"
    )
    assert guests.find("b").trouble() is None
    _tell(claims[0], state=record.ENDING, why="the server fell over", logs="/logs")
    assert str(guest.trouble()) == "guest a: its pair ended: the server fell over; logs: /logs"
    _tell(claims[0], state=record.STARTING)
    assert "is not up yet" in str(guest.trouble())


def test_what_is_remembered_of_a_dead_pair(claims: list[Claim]) -> None:
    claims.append(claim_number())
    _tell(claims[0])
    guest = guests.find("a")
    record.write_end(1, ("a", "b"), "its keeper was killed", "/logs")
    assert guest.trouble() is None, "what a living pair has written is for later"
    assert record.ended({1}) == []
    claims[0].close()
    for trouble in (guest.trouble(), _failure("b")):
        assert "pair 1 ended: its keeper was killed; logs: /logs" in str(trouble)
    record.forget_end(1)
    assert "was taken down" in str(guest.trouble())
    assert "no guest runs" in str(_failure("a"))


def _failure(name: str) -> LabError:
    with pytest.raises(LabError) as caught:
        guests.find(name)
    return caught.value


def test_end_records_belong_to_a_runtime_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.write_end(1, ("a", "b"), "this", "/logs")
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "other"))
    assert record.ended(set()) == []
    record.forget_end(1)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "r"))
    assert [each.why for each in record.ended(set())] == ["this"]


def test_a_damaged_end_record_is_no_obstacle(tmp_path: Path) -> None:
    record.write_end(1, ("a", "b"), "this", "/logs")
    for path in (tmp_path / "state/bluebridge/ended").iterdir():
        path.write_text("{")
    assert record.ended(set()) == []


def test_a_runtime_folder_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    with pytest.raises(LabError, match="absent, which is no folder; make it") as refused:
        registry.living()
    assert refused.value.status == 2
