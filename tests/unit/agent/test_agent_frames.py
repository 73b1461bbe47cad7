"""Frames survive any cut and any garbage; nothing but frames comes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.guest.agent import frames
from bluebridge.guest.agent.frames import FILLER, Frame, FrameReader, Kind, encode

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
    """What a guest from a snapshot sees: its host died within a frame, another one begins."""
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
