"""The fuzzer's corpus, its steps, and what it keeps."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.pci.memory import GuestMemory
from tests.fuzz import __main__ as fuzz
from tests.fuzz import guests, mutate, record, targets, timed_host
from tests.fuzz.guests import FORMS, Kind
from tests.fuzz.keep import cover
from tests.fuzz.recorder import Tape
from tests.fuzz.steps import CORPUS, BytesLeft, Step, decode, encode
from tests.models.rdma_node import Pair
from tests.models.sockets import no_leak


@pytest.mark.parametrize("name", targets.TARGETS)
def test_inputs_of_the_corpus(name: str) -> None:
    paths = sorted((CORPUS / name).glob("*"))
    assert paths
    for path in paths:
        targets.run(name, path.read_bytes())


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the corpora and findings of a run."""
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path / "corpus")
    monkeypatch.setattr(fuzz, "FINDINGS", tmp_path / "findings")
    return tmp_path


BRIEF = argparse.Namespace(seconds=1, brief=True)


@pytest.mark.parametrize(("ends", "status"), [([0], 0), ([1], 1), ([], 1)])
def test_a_target_that_cannot_be_fuzzed_is_no_success(
    monkeypatch: pytest.MonkeyPatch, places: Path, ends: list[int], status: int
) -> None:
    """As without atheris, or when all targets end before this one's turn."""

    def end(work: Path, names: list[str], _: object) -> Iterator[tuple[str, int]]:
        for name, each in zip(names, ends, strict=False):
            (work / f"{name}.said").write_text("its last line")
            yield name, each

    monkeypatch.setattr(fuzz, "_ends", end)
    assert fuzz.fuzz(["lines"], BRIEF) == status


def test_without_atheris_a_brief_run_says_that_it_only_replays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fuzz", "--brief"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert fuzz.main() == 0
    assert capsys.readouterr().out == fuzz.MISSING + "\n"


def test_what_a_brief_run_finds_is_in_its_output(
    monkeypatch: pytest.MonkeyPatch, places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(work: Path, names: list[str], _: object) -> Iterator[tuple[str, int]]:
        (fuzz.FINDINGS / "lines-crash-1").write_bytes(b"input")
        (work / "lines.said").write_text("its last line")
        yield "lines", 77

    monkeypatch.setattr(fuzz, "_ends", find)
    assert fuzz.fuzz(["lines"], BRIEF) == 1
    said = capsys.readouterr().out
    assert f"--replay lines {fuzz.FINDINGS / 'lines-crash-1'}" in said and "aW5wdXQ=" in said


def test_a_target_s_time_begins_after_the_inputs_of_its_corpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    turn = targets.Turn("lines", inputs=2, seconds=3)
    for now in (50.0, 90.0, 92.9):  # it was slow to start  # noqa: B007
        turn.run(b"a line")
        assert not turn.over
    now = 93.0
    turn.run(b"a line")
    assert turn.over and turn.runs == 2


def test_an_entry_longer_than_its_ring_is_flushed_once() -> None:
    """It led around the ring to itself, an even number of times, and so had no end."""
    pair = Pair(log_sq_size=0).connect()
    pair.a.command(Opcode.TOERR_QP, bytes(8), pair.qa.qpn)
    pair.a.host.poke(pair.qa.address, pack(">II", 0, 16))  # two slots of a ring of one
    pair.a.doorbell(pair.qa.qpn)
    for _ in range(10):
        pair.a.host.turn()
    assert len(pair.a.completions(pair.qa)) == 1


def test_no_bytes_can_be_stored_at_address_zero_of_a_guest_without_memory() -> None:
    GuestMemory().write(0, b"")


@given(st.binary(max_size=300))
def test_any_bytes_are_steps_which_stay_the_same_when_written_again(data: bytes) -> None:
    steps = list(decode(FORMS, BytesLeft(data)))
    again = b"".join(encode(FORMS, step) for step in steps)
    assert list(decode(FORMS, BytesLeft(again))) == steps


@settings(max_examples=30)
@given(st.sampled_from(sorted(mutate.FORMS)), st.binary(max_size=200), st.integers(0, 1 << 32))
def test_a_changed_input_is_no_longer_than_allowed(target: str, data: bytes, seed: int) -> None:
    change = mutate.mutator(target)
    for most in (1, 50, 300):
        assert len(change(data, most, seed)) <= most
    assert change(data, 300, seed) == change(data, 300, seed)


def test_one_changed_step_leaves_the_others_whole() -> None:
    steps = [Step(Kind.STORE, 0, (0, 4 * at), bytes(4)) for at in range(50)]
    data = bytes(3) + b"".join(encode(FORMS, step) for step in steps)
    change = mutate.mutator("hca")
    kept = []
    for seed in range(100):
        found = list(decode(FORMS, BytesLeft(change(data, 1 << 14, seed)[3:])))
        kept.append(sum(step in found for step in steps))
    assert sorted(kept)[len(kept) // 2] >= 48


def test_what_is_stored_word_by_word_is_one_step_of_a_recording() -> None:
    tape = Tape()
    for at in range(3):
        tape.add(Kind.STORE, 1, 0, 0x80680 + 4 * at, data=bytes((at,) * 4))
    tape.add(Kind.STORE, 1, 0, 0x100, data=b"1234")
    tape.add(Kind.TIME, 0, 5)
    tape.add(Kind.TIME, 0, 7)
    words = b"\0\0\0\0\1\1\1\1\2\2\2\2"
    assert tape.steps == [
        Step(Kind.STORES, 1, (0, 0x80680, 4), words),
        Step(Kind.STORE, 1, (0, 0x100), b"1234"),
        Step(Kind.TIME, 0, (12,)),
    ]


def test_a_recording_does_not_repeat_what_its_prologue_does() -> None:
    before = guests.prologue("ntb", 1)
    after = encode(FORMS, Step(Kind.TIME, 0, (3,)))
    short = record.shortened("ntb", b"\0\0", before + after)
    assert short == b"\1\0\0" + after
    assert guests.parts("ntb", short) == (b"\0\0", before + after)
    assert record.shortened("ntb", b"\0\0", after) == b"\0\0\0" + after


def test_a_corpus_keeps_few_inputs_that_reach_everything() -> None:
    reached = {
        b"a": frozenset({("f", 1), ("f", 2)}),
        b"b": frozenset({("f", 2)}),
        b"c" * 500: frozenset({("f", 1), ("f", 2), ("f", 3)}),
    }
    assert cover(reached) == {b"a", b"c" * 500}
    assert cover({}) == set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The processor time of this thread, as the test says."""
    now = [0.0]
    monkeypatch.setattr("time.thread_time", lambda: now[0])
    yield now


def test_a_call_that_computes_for_long_is_a_finding(clock: list[float]) -> None:
    host = timed_host.TimedHost()

    def work() -> None:
        clock[0] += seconds

    seconds = timed_host.STALL_SECONDS
    host.call_later(1, work)
    host.run(2)
    seconds *= 1.01
    host.call_soon(work)
    with pytest.raises(timed_host.Stall):
        host.run()


def test_work_without_an_end_lets_other_steps_go_on() -> None:
    host = timed_host.TimedHost()
    calls = []

    def again() -> None:
        calls.append(1)
        host.call_soon(again)

    host.call_soon(again)
    host.run()
    assert len(calls) == timed_host.CALLS


def test_a_descriptor_that_is_left_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.models.sockets.PATIENCE", 0.0)
    left = []
    with pytest.raises(AssertionError, match="1 descriptors are left"), no_leak():
        left.append(os.open("/dev/null", os.O_RDONLY))
    os.close(left[0])
