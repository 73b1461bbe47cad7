"""Abuse of any socket: who writes there next is served, and nothing stays open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from tests.fuzz.sockets import Kind, attack
from tests.fuzz.steps import Step
from tests.fuzz.targets import no_errors
from tests.models.descriptors import KINDS
from tests.models.sockets import SOCKETS, Socket

OPEN, CLOSE = Step(Kind.OPEN, 0, (0,)), Step(Kind.CLOSE, 0)
DEAF = Step(Kind.READ, 0, (0,))
Offence = Callable[[Socket], Iterator[Step]]


def sent(data: bytes, descriptors: int = 0, kind: int = 0) -> Step:
    return Step(Kind.SEND, 0, (kind, descriptors), data)


def whole(row: Socket) -> bytes:
    return b"".join(row.good)


def half_a_message(row: Socket) -> Iterator[Step]:
    yield from (OPEN, sent(row.good[0][: len(row.good[0]) // 2]))


def many_that_say_nothing(row: Socket) -> Iterator[Step]:
    return (Step(Kind.OPEN, number, (0,)) for number in range(16))


def replies_that_nobody_takes(row: Socket) -> Iterator[Step]:
    yield from (OPEN, DEAF, sent(whole(row)))
    yield from [sent(row.good[-1])] * 400


def a_byte_at_a_time(row: Socket) -> Iterator[Step]:
    yield OPEN
    yield from (sent(bytes((byte,))) for byte in whole(row))


def cut_anywhere(row: Socket) -> Iterator[Step]:
    for length in range(1, len(row.good[0]), 3):
        yield from (OPEN, sent(row.good[0][:length]), CLOSE)


def a_bit_that_is_another(row: Socket) -> Iterator[Step]:
    for at in range(0, 8 * len(row.good[0]), 5):
        data = bytearray(row.good[0])
        data[at >> 3] ^= 1 << (at & 7)
        yield from (OPEN, sent(bytes(data) + whole(row)), CLOSE)


def noise(row: Socket) -> Iterator[Step]:
    for seed in range(8):
        dice = Random(seed)
        yield from (OPEN, sent(dice.randbytes(4000)), OPEN, sent(whole(row) + dice.randbytes(400)))


def a_message_without_end(row: Socket) -> Iterator[Step]:
    yield OPEN
    yield from [sent(b"[" * 60000)] * 30


def descriptors_where_none_belong(row: Socket) -> Iterator[Step]:
    for kind in range(len(KINDS)):
        yield from (OPEN, sent(row.good[0], 1, kind), sent(row.good[-1], 8, kind), CLOSE)


def an_end_of_either_direction(row: Socket) -> Iterator[Step]:
    for how in range(3):
        yield from (OPEN, sent(whole(row)), Step(Kind.SHUTDOWN, 0, (how,)), sent(row.good[-1]))


STAY = (half_a_message, many_that_say_nothing, replies_that_nobody_takes)
"""Those whose clients are still there when the next one comes."""
GO = (
    *(half_a_message, a_byte_at_a_time, cut_anywhere, a_bit_that_is_another, noise),
    *(a_message_without_end, descriptors_where_none_belong, an_end_of_either_direction),
)


@pytest.mark.parametrize("row", SOCKETS, ids=[row.name for row in SOCKETS])
@pytest.mark.parametrize(
    ("offence", "stay"),
    [*((each, True) for each in STAY), *((each, False) for each in GO)],
    ids=[*(f"{each.__name__} and stays" for each in STAY), *(each.__name__ for each in GO)],
)
def test_who_writes_there_next_is_served(row: Socket, offence: Offence, stay: bool) -> None:
    with no_errors():
        attack(row, 0, offence(row), stay=stay)
