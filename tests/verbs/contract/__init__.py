"""What every provider of verbs does alike: tests of `guest.verbs.interface`, by a fixture.

A provider's test module subclasses `VerbsContract` and gives the fixture `devices`, two devices
that reach each other. Both players have `SIZE` bytes of memory; `a` sends and `b` answers.
"""

from __future__ import annotations

from tests.verbs.contract.common import Devices
from tests.verbs.contract.device import TheDevice
from tests.verbs.contract.events import Events
from tests.verbs.contract.memory import Memory
from tests.verbs.contract.messages import Messages
from tests.verbs.contract.protection import Protection
from tests.verbs.contract.states import States

__all__ = ["Devices", "VerbsContract"]


class VerbsContract(Messages, Memory, Protection, States, Events, TheDevice):
    """All of it."""
