"""Tests of `guest.verbs.interface` by a fixture: every provider of verbs passes them.

A provider's test module subclasses `VerbsContract` and gives the fixture `devices`, two devices
that reach each other. Both players have `SIZE` bytes of memory; `a` sends and `b` answers.
"""

from __future__ import annotations

from tests.models.verbs.contract.common import Devices
from tests.models.verbs.contract.rules import Events, Protection, States, TheDevice
from tests.models.verbs.contract.traffic import Memory, Messages

__all__ = ["Devices", "VerbsContract"]


class VerbsContract(Messages, Memory, Protection, States, Events, TheDevice):
    """All of it."""
