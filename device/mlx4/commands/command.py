"""Firmware commands as handlers see them: the request, and the rule that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.commands import MAILBOX_SIZE, Status
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.pci.bus import DmaError, HostBus


@dataclass(slots=True)
class Command:
    """One request, as the HCR held it when GO was written."""

    opcode: int
    op_modifier: int
    in_modifier: int
    in_param: int
    out_param: int
    token: int
    event: bool
    bus: HostBus = field(repr=False)

    def mailbox(self, length: int = MAILBOX_SIZE) -> bytes:
        """The first `length` bytes of the input mailbox, read once; BAD_PARAM without memory."""
        if self.in_param & 7:
            raise CommandError(Status.BAD_PARAM, f"mailbox at {self.in_param:#x} is not aligned")
        try:
            return self.bus.read(self.in_param, length, What.MAILBOX_IN, self.opcode)
        except DmaError as error:
            raise CommandError(Status.BAD_PARAM, f"input mailbox: {error}") from error

    @property
    def wants_context(self) -> bool:
        """Of a HW2SW command: op modifier 0 asks for the context, where there is a mailbox for it.

        Linux says both or neither (`mlx4/srq.c: mlx4_HW2SW_SRQ`, for example).
        """
        return self.op_modifier == 0 and self.out_param != 0


Result = int | bytes | Iterator[None] | None
"""Of a handler: the immediate output, the output mailbox from its start, or nothing; an iterator
does the work in portions, between which others have their turns, and then there is no output."""

Handler = Callable[[Adapter, Command], Result]


@dataclass(frozen=True, slots=True)
class Rule:
    """How commands with one opcode are carried out.

    `before_init`: works without INIT_HCA. `closing`: takes something back and always succeeds,
    without INIT_HCA too, since drivers reset the whole device when such a command fails.
    """

    handler: Handler
    before_init: bool = False
    closing: bool = False
