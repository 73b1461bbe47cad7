"""Reads the marks of a test, checked before anything starts, as the pair that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from bluebridge.device import cards
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab.config import LIMITS, LabConfig

HCA = "hca"
"""The device that the mark `devices` can name."""

_SIZES = ", ".join(LIMITS)


def config_of(node: pytest.Item) -> LabConfig:
    """Return the pair that a test's marks ask for; of several marks of a name the closest counts.

    Raises `UsageError` in one line that names the test when a mark makes no sense.
    """
    wanted = LabConfig()
    for name, read in _READERS.items():
        mark = node.get_closest_marker(name)
        if mark is not None:
            try:
                wanted = read(wanted, *mark.args, **mark.kwargs)
            except _MarkError as error:
                raise UsageError(f"{node.nodeid}: mark {name}: {error}") from None
    return wanted


def is_shared(node: pytest.Item) -> bool:
    """Whether the tests of the test's module share a pair."""
    return node.get_closest_marker("shared_pair") is not None


def may_crash(node: pytest.Item) -> bool:
    """Whether a guest or the server may end in this test without failing it."""
    return node.get_closest_marker("may_crash") is not None


def check(node: pytest.Item, fixtures: Collection[str]) -> None:
    """Raise `UsageError` for marks that are wrong, or that no fixture of the test heeds.

    A mark of the whole module may concern some of its tests only.
    """
    config_of(node)
    for mark in node.own_markers:
        if mark.name in _OF_PAIR and "pair" not in fixtures:
            raise UsageError(
                f"{node.nodeid}: mark {mark.name}: the test does not use the fixture `pair`",
                "give lab.pair() arguments instead",
            )


class _MarkError(Exception):
    """A mark has arguments that make no sense."""


def _bare(wanted: LabConfig, *args: Any, **kwargs: Any) -> LabConfig:
    if args or kwargs:
        raise _MarkError("takes no arguments")
    return wanted


def _cold_boot(wanted: LabConfig, *args: Any, **kwargs: Any) -> LabConfig:
    return replace(_bare(wanted, *args, **kwargs), cold=True)


def _devices(
    wanted: LabConfig,
    *names: Any,
    vfio: Any = None,
    kernel: Any = None,
    card: Any = cards.DEFAULT,
    **others: Any,
) -> LabConfig:
    if others:
        raise _MarkError(f"no argument {next(iter(others))}; there are vfio=, kernel= and card=")
    if not isinstance(card, str) or not set(card.split(",")) <= set(cards.CARDS):
        raise _MarkError(f"card={card!r} is none of {', '.join(cards.CARDS)}")
    for name in names:
        if name != HCA:
            raise _MarkError(f"no device {name!r}; there is {HCA}, or () for none")
    if len(set(names)) != len(names):
        raise _MarkError("a device is named twice; each guest has one of a kind")
    if vfio not in (None, True, False):
        raise _MarkError(f"vfio={vfio!r} is neither True nor False")
    if kernel not in (None, True):
        raise _MarkError(f"kernel={kernel!r} is not True; vfio=False leaves the HCA without driver")
    if (vfio, kernel) != (None, None) and HCA not in names:
        raise _MarkError('vfio= and kernel= say who drives the HCA; name "hca" as well')
    if vfio and kernel:
        raise _MarkError("an HCA belongs to vfio-pci or to the kernel's driver")
    options = replace(wanted.options, card=card)
    return replace(
        wanted, hca=HCA in names, vfio=vfio is not False, kernel=bool(kernel), options=options
    )


def _hosts(wanted: LabConfig, *names: Any, **others: Any) -> LabConfig:
    if others or not names or not set(names) <= set(wanted.names):
        raise _MarkError(f"names sides without a guest: {', '.join(map(repr, wanted.names))}")
    return replace(wanted, hosts="".join(sorted(set(names))))


def _machine(wanted: LabConfig, *args: Any, **figures: Any) -> LabConfig:
    if args or not figures:
        raise _MarkError(f"takes named arguments: {_SIZES}")
    for name, value in figures.items():
        if name not in LIMITS:
            raise _MarkError(f"no argument {name}; there is {_SIZES}")
        low, high = LIMITS[name]
        if type(value) is not int or not low <= value <= high:
            raise _MarkError(f"{name}={value!r} is no number from {low} to {high}")
    return replace(wanted, **figures)


_READERS: dict[str, Callable[..., LabConfig]] = {
    "cold_boot": _cold_boot,
    "devices": _devices,
    "hosts": _hosts,
    "machine": _machine,
    "shared_pair": _bare,
    "may_crash": _bare,
}
_OF_PAIR = frozenset(_READERS) - {"may_crash"}
"""Marks that say nothing about the pairs of `lab.pair()`."""
