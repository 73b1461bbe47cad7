"""Frames of the agent's protocol, whatever precedes them; and the kernel's errors it copies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.guest.agent import frames
from bluebridge.guest.agent.__main__ import KernelErrors, error_line
from bluebridge.guest.agent.frames import FILLER, Frame, FrameReader, Kind, encode
from bluebridge.guest.agent.loop import Loop

SESSION = b"session1"
OTHER = b"session2"

payloads = st.binary(max_size=300)
sent_frames = st.builds(
    Frame,
    st.just(SESSION),
    st.sampled_from([Kind.OPEN, Kind.DATA, Kind.DONE]),
    st.integers(0, 2**32 - 1),
    payloads,
)
garbage = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda payload: encode(OTHER, Kind.DATA, 1, payload), payloads),
    st.just(frames.MAGIC),
)


def _bytes(frame: Frame) -> bytes:
    return encode(frame.session, frame.kind, frame.channel, frame.payload)


def _all(reader: FrameReader, data: bytes, step: int) -> list[Frame]:
    found = []
    for start in range(0, len(data), step):
        reader.feed(data[start : start + step])
        while (frame := reader.take()) is not None:
            found.append(frame)
    return found


def test_a_frame_of_another_session_is_passed_over() -> None:
    old, new = (encode(session, Kind.DATA, 1, b"answer") for session in (OTHER, SESSION))
    assert _all(FrameReader(SESSION), old + new + FILLER, 100) == [
        Frame(SESSION, Kind.DATA, 1, b"answer")
    ]


@given(st.lists(st.tuples(garbage, sent_frames), max_size=8), st.integers(1, 500))
def test_frames_between_garbage_arrive_in_order(
    parts: list[tuple[bytes, Frame]], step: int
) -> None:
    stream = b"".join(noise + _bytes(frame) for noise, frame in parts)
    found = _all(FrameReader(SESSION), stream + FILLER, step)
    assert found == [frame for _, frame in parts]


@given(st.binary(max_size=2000), st.integers(1, 300))
def test_pure_garbage_gives_no_frame_and_is_not_kept(noise: bytes, step: int) -> None:
    reader = FrameReader(SESSION)
    assert _all(reader, noise, step) == []
    _all(reader, FILLER, 4096)
    assert reader.skipped >= len(noise)


@given(sent_frames, st.data())
def test_a_damaged_frame_is_dropped(frame: Frame, data: st.DataObject) -> None:
    stream = bytearray(_bytes(frame))
    position = data.draw(st.integers(0, len(stream) - 1))
    stream[position] ^= data.draw(st.integers(1, 255))
    good = Frame(SESSION, Kind.DATA, 9, b"after")
    found = _all(FrameReader(SESSION), bytes(stream) + _bytes(good) + FILLER, 64)
    # The three padding bytes are covered by the header's checksum as well.
    assert found == [good]


@given(st.integers(1, 200), payloads)
def test_sync_is_found_behind_half_a_frame(cut: int, payload: bytes) -> None:
    """A guest from a snapshot sees it so: its host died within a frame, another one begins."""
    half = encode(OTHER, Kind.DATA, 1, payload + bytes(300))[: 32 + cut]
    reader = FrameReader(OTHER)
    sync = encode(SESSION, Kind.SYNC, 0)
    found = _all(reader, half + sync + FILLER + sync, 4096)
    assert [(frame.kind, frame.session) for frame in found] == [(Kind.SYNC, SESSION)] * 2


def test_filler_completes_the_longest_frame() -> None:
    half = encode(SESSION, Kind.DATA, 1, bytes(frames.PAYLOAD_BYTES - 1) + b"x")[:33]
    sync = encode(OTHER, Kind.SYNC, 0)
    found = _all(FrameReader(SESSION), half + FILLER + sync, 4096)
    assert [frame.session for frame in found] == [OTHER]


def test_a_payload_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        encode(SESSION, Kind.DATA, 1, bytes(frames.PAYLOAD_BYTES + 1))
    with pytest.raises(ValueError, match="no JSON object"):
        Frame(SESSION, Kind.OPEN, 1, b"[1]").object()


def test_a_payload_that_is_nested_too_deep_is_nonsense_as_any_other() -> None:
    """A guest can send it: the host's reading thread must not end by it."""
    with pytest.raises(ValueError, match="nested"):
        Frame(SESSION, Kind.DONE, 1, b"[" * 30000).object()


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            b"3,812,12345678,-;mlx4_core: failed\n SUBSYSTEM=pci\n",
            b"[   12.345678] mlx4_core: failed\n",
        ),
        (b"2,1,5,-,caller=T1;critical\n", b"[    0.000005] critical\n"),
        (b"11,1,5,-;a program's error\n", b"[    0.000005] a program's error\n"),
        (b"1,1,5,-;the console has it\n", None),
        (b"4,1,5,-;a warning\n", None),
        (b"6,1,5,-;information\n", None),
        (b"", None),
        (b"three,1,5,-;x\n", None),
        (b"3;x\n", None),
    ],
)
def test_errors_are_lines_and_nothing_else_is(record: bytes, line: bytes | None) -> None:
    assert error_line(record) == line


def test_errors_are_copied_to_the_second_serial_line(tmp_path: Path) -> None:
    """A pipe stands for the kernel's log; whoever reads one of its records gets all."""
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    (tmp_path / "dev/ttyS1").touch()
    writer = os.open(tmp_path / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
    loop = Loop()
    KernelErrors(loop, str(tmp_path))
    for record in (b"3,1,1000000,-;first\n", b"6,2,2000000,-;nothing\n", b"3,3,3000000,-;third\n"):
        os.write(writer, record)
        loop.run_once()
    os.close(writer)
    assert (tmp_path / "dev/ttyS1").read_bytes() == b"[    1.000000] first\n[    3.000000] third\n"


def test_a_machine_without_a_second_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").touch()
    with pytest.raises(FileNotFoundError):
        KernelErrors(Loop(), str(tmp_path))
