"""Changes inputs of steps by steps: libFuzzer's changes of bytes seldom leave steps whole."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz import guests, sockets
from tests.fuzz.steps import BytesLeft, Form, Forms, Step, decode, encode

FORMS: dict[str, Forms] = {
    "hca": guests.FORMS,
    "mlx5": guests.FORMS,
    "ntb": guests.FORMS,
    "sockets": sockets.FORMS,
}
"""Of targets whose inputs are steps."""
STARTS: dict[str, int] = {"hca": 3, "mlx5": 3, "ntb": 3, "sockets": 2}
"""Bytes in front of the steps."""
PLAIN = 4
"""One of so many inputs is changed as bytes, without a look at steps."""
SMALL = (0, 1, 2, 4, 8, 0xFF)
EXTREMES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)

Mutate = Callable[[bytes, int], bytes]
"""A change of bytes, to a length at most."""


def changed_bytes(dice: random.Random) -> Mutate:
    """Some bytes are others, more, fewer, or those of another place.

    libFuzzer's own is not to be had: `atheris.Mutate` of 2.3 says that `Fuzz` is not running.
    """

    def mutate(data: bytes, most: int) -> bytes:
        raw = bytearray(data)
        for _ in range(dice.choice((1, 1, 2, 4))):
            at, length = dice.randrange(len(raw) + 1), dice.choice((1, 1, 2, 4, 8))
            kind = dice.randrange(5)
            if kind == 0:
                raw[at : at + length] = dice.randbytes(length)
            elif kind == 1:
                raw[at : at + 1] = bytes((dice.choice(EXTREMES),))
            elif kind == 2 and at < len(raw):
                raw[at] ^= 1 << dice.randrange(8)
            elif kind == 3:
                start = dice.randrange(len(raw) + 1)
                raw[at : at + length] = raw[start : start + length]
            else:
                raw[at : at + dice.choice((0, length))] = bytes(dice.choice((0, length)))
        return bytes(raw[:most])

    return mutate


def mutator(target: str) -> Callable[[bytes, int, int], bytes]:
    """A custom mutator for atheris: data, most bytes, seed."""
    forms, start = FORMS[target], STARTS[target]

    def change(data: bytes, most: int, seed: int) -> bytes:
        dice = random.Random(seed)
        mutate = changed_bytes(dice)
        steps = list(decode(forms, BytesLeft(data[start:])))
        if not dice.randrange(PLAIN) or not steps:
            return mutate(data, most)
        head = data[:start] if dice.randrange(16) else mutate(data[:start], start)
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            _change(forms, steps, dice, mutate)
        return (head.ljust(start, b"\0") + b"".join(encode(forms, step) for step in steps))[:most]

    return change


def _change(forms: Forms, steps: list[Step], dice: random.Random, mutate: Mutate) -> None:
    """One change of one step, or of their order."""
    at = dice.randrange(len(steps)) if steps else 0
    kind = dice.randrange(8) if steps else 6
    if kind < 4:
        steps[at] = _changed(forms, steps[at], dice, mutate)
    elif kind == 4:
        steps.insert(at, dice.choice(steps))
    elif kind == 5:
        del steps[at]
    elif kind == 6:
        steps.insert(at, _new(forms, dice))
    else:
        other = dice.randrange(len(steps))
        steps[at], steps[other] = steps[other], steps[at]


def _changed(forms: Forms, step: Step, dice: random.Random, mutate: Mutate) -> Step:
    """Other data, another number, or another function."""
    form = forms[step.kind]
    choice = dice.randrange(8)
    if form.data and step.data and choice < 5:
        data = mutate(step.data, len(step.data) + dice.choice((0, 0, 0, 16)))
        return Step(step.kind, step.function, step.numbers, data)
    if form.widths and choice < 7:
        numbers = list(step.numbers)
        which = dice.randrange(len(numbers))
        numbers[which] = _number(numbers[which], form, which, dice)
        return Step(step.kind, step.function, tuple(numbers), step.data)
    return Step(step.kind, dice.randrange(4), step.numbers, step.data)


def _number(number: int, form: Form, which: int, dice: random.Random) -> int:
    bits = 8 * form.widths[which]
    choice = dice.randrange(4)
    if choice == 0:
        return dice.getrandbits(bits)
    if choice == 1:
        return dice.choice(SMALL)
    if choice == 2:
        return number ^ 1 << dice.randrange(bits)
    return number + dice.choice((-8, -4, -1, 1, 4, 8))


def _new(forms: Forms, dice: random.Random) -> Step:
    kind = dice.randrange(len(forms))
    numbers = tuple(dice.choice(SMALL) for _ in forms[kind].widths)
    data = dice.randbytes(dice.choice((1, 2, 4, 8))) if forms[kind].data else b""
    return Step(kind, dice.randrange(4), numbers, data)
