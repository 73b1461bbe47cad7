"""The adapters that a server can be: a row for each, by the name that `--card` takes.

A row has what an option, a log or a lab needs to know. How an adapter is made stands with the
server (`bluebridge.device.server.adapters`), so that a command need not load the engines.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Card:
    """One adapter: its `name`, its `title` for people, and the kernel's `driver` of it.

    `loader` is the program of guests that binds adapters to that driver.

    `lacks` says, by the options of a server that it has not, why; such an option is refused unless
    another adapter of the server has it. `alone` are those that no adapter can have next to it.
    """

    name: str
    title: str
    driver: str
    loader: str
    lacks: Mapping[str, str] = field(default_factory=dict)
    alone: Mapping[str, str] = field(default_factory=dict)


CONNECTX3: Final = Card("connectx3", "ConnectX-3", "mlx4", "bluebridge-mlx4")
CONNECTX5: Final = Card(
    "connectx5",
    "ConnectX-5",
    "mlx5",
    "bluebridge-mlx5",
    lacks={
        "pro": "has RoCE v2 without that",
        "large_cqes": "has entries of 64 bytes anyway",
        "blueflame_size": "has BlueFlame registers of 512 bytes",
    },
    alone={"ports": "has one port", "link": "speaks Ethernet"},
)

CARDS: Final = {card.name: card for card in (CONNECTX3, CONNECTX5)}
DEFAULT: Final = CONNECTX3.name


def card_names(text: str) -> str:
    """Check `connectx5` or `connectx5,connectx3`; raises `argparse.ArgumentTypeError`."""
    for name in text.split(","):
        if name not in CARDS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(CARDS)}")
    return text


def listed(text: str) -> tuple[Card, ...]:
    """Return the cards that a checked text names, in its order."""
    return tuple(CARDS[name] for name in text.split(","))


def no_common_roce(cards: Sequence[Card], pro: bool) -> str:
    """Return why adapters of these cards make no RoCE connections; empty if they do.

    Drivers of a ConnectX-5 make them by RoCE v2, which a ConnectX-3 has as a ConnectX-3 Pro only.
    """
    if pro or CONNECTX3 not in cards or CONNECTX5 not in cards:
        return ""
    return "a ConnectX-5 makes connections by RoCE v2, which a ConnectX-3 has with --pro only"


def objection(cards: Sequence[Card], asked: Mapping[str, object]) -> str:
    """Return why adapters of these cards cannot have an option, such as `ports`; empty if they can.

    `asked` are the values of options that differ from their defaults.
    """
    for name in asked:
        flag = f"--{name.replace('_', '-')}"
        for card in cards:
            if name in card.alone:
                return f"{flag}: a {card.title} {card.alone[name]}"
        if cards and all(name in card.lacks for card in cards):
            return f"{flag}: a {cards[0].title} {cards[0].lacks[name]}"
    return ""
