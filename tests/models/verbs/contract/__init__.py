"""What every provider of verbs does alike: tests of `guest.verbs.interface`, by a fixture.

A provider's test module subclasses `VerbsContract` and gives the fixture `devices`, two devices
that reach each other. Both players have `SIZE` bytes of memory; `a` sends and `b` answers.
"""

from __future__ import annotations

from tests.models.verbs.contract.common import Devices
from tests.models.verbs.contract.device import TheDevice
from tests.models.verbs.contract.events import Events
from tests.models.verbs.contract.memory import Memory
from tests.models.verbs.contract.messages import Messages
from tests.models.verbs.contract.protection import Protection
from tests.models.verbs.contract.states import States

__all__ = ["Devices", "VerbsContract"]


class VerbsContract(Messages, Memory, Protection, States, Events, TheDevice):
    """All of it."""
