"""A firmware command as its handler sees it, and the rules by which commands are carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.commands import MAILBOX_SIZE, Status
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.pci.bus import DmaError, HostBus

Result = int | bytes | Iterator[None] | None
"""The output of a handler: the immediate, the output mailbox from its start, or None.

An iterator does the work in portions, between which others have their turns, and has no output.
"""


@dataclass(slots=True)
class Command:
    """One command, as the HCR held it when GO was written."""

    opcode: int
    op_modifier: int
    in_modifier: int
    in_param: int
    out_param: int
    token: int
    event: bool
    bus: HostBus = field(repr=False)

    def mailbox(self, length: int = MAILBOX_SIZE) -> bytes:
        """Return the first `length` bytes of the input mailbox.

        Raises `CommandError` (BAD_PARAM) when it is not aligned or not in memory.
        """
        if self.in_param & 7:
            raise CommandError(Status.BAD_PARAM, f"mailbox at {self.in_param:#x} is not aligned")
        try:
            return self.bus.read(self.in_param, length, What.MAILBOX_IN, self.opcode)
        except DmaError as error:
            raise CommandError(Status.BAD_PARAM, f"input mailbox: {error}") from error


Handler = Callable[[Adapter, Command], Result]


@dataclass(frozen=True, slots=True)
class Rule:
    """The handler of commands with one opcode, and when it may run.

    `before_init`: works without INIT_HCA. `closing`: takes something back and always succeeds,
    without INIT_HCA too, since drivers reset the whole device when such a command fails.
    """

    handler: Handler
    before_init: bool = False
    closing: bool = False
