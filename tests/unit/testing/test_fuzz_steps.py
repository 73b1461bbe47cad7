"""Inputs of steps: their encoding, their changes, what counts as a finding."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import mutate, prologues, record, sockets, timed_host
from tests.fuzz.bytes_left import BytesLeft
from tests.fuzz.guests import FORMS, Kind
from tests.fuzz.keep import cover
from tests.fuzz.steps import Step, decode, encode
from tests.fuzz.tape import Tape


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
    before = prologues.prologue("ntb", 1)
    after = encode(FORMS, Step(Kind.TIME, 0, (3,)))
    short = record.shortened("ntb", b"\0\0", before + after)
    assert short == b"\1\0\0" + after
    assert prologues.parts("ntb", short) == (b"\0\0", before + after)
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
    monkeypatch.setattr(sockets, "CLOSING_SECONDS", 0.0)
    left = []
    with pytest.raises(AssertionError, match="1 descriptors are left"), sockets.no_leak():
        left.append(os.open("/dev/null", os.O_RDONLY))
    os.close(left[0])
