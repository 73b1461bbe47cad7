"""The conditions by which a fault rule chooses messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bluebridge.device.fabric.faults import traits
from bluebridge.device.fabric.messages import Message

NO_LIMIT: Final = 1 << 64


@dataclass(slots=True)
class Match:
    """Conditions that must all hold; an empty one always does.

    `shortest` and `longest` bound the bytes of a message. The immediate value must be `immediate`
    where `immediate_mask` has ones.
    """

    kinds: frozenset[str] = frozenset()
    opcodes: frozenset[str] = frozenset()
    cm: frozenset[int] = frozenset()
    qpn: int | None = None
    source_qpn: int | None = None
    target_qpn: int | None = None
    shortest: int = 0
    longest: int = NO_LIMIT
    immediate: int | None = None
    immediate_mask: int = field(default=0xFFFFFFFF)
    payload: bytes = b""

    def holds(self, message: Message) -> bool:
        """Whether a message meets all conditions."""
        if self.kinds and traits.kind_of(message) not in self.kinds:
            return False
        if self.opcodes and traits.opcode_of(message) not in self.opcodes:
            return False
        if self.cm and traits.cm_attribute(message) not in self.cm:
            return False
        return self._numbers(message) and self._content(message)

    def _numbers(self, message: Message) -> bool:
        source, target = traits.source_qpn(message), traits.target_qpn(message)
        if self.qpn is not None and self.qpn not in (source, target):
            return False
        if self.source_qpn is not None and self.source_qpn != source:
            return False
        return self.target_qpn is None or self.target_qpn == target

    def _content(self, message: Message) -> bool:
        if not self.shortest <= traits.length_of(message) <= self.longest:
            return False
        if self.immediate is not None:
            value = traits.immediate_of(message)
            if value == traits.NONE or (value ^ self.immediate) & self.immediate_mask:
                return False
        return traits.beginning_of(message, len(self.payload)) == self.payload
