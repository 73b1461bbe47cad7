"""The address vector of NTRDMA; compiled, as what it is a kind of."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.guest.verbs.values import AddressVector


@dataclass(slots=True, frozen=True)
class NtrdmaAddress(AddressVector):
    """The device at the other end, by its address."""

    device: bytes
