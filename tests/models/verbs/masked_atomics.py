"""Masked atomics between two players, whatever the card is."""

from __future__ import annotations

from bluebridge.guest.verbs import WcOpcode, WcStatus, WrOpcode
from tests.models.verbs.player import Player


def masked_atomics(a: Player, b: Player) -> None:
    """Have `a` swap and add under masks in the memory of `b`, from its first byte on."""
    b.view[:8] = (0x1122).to_bytes(8, "little")
    a.send(
        WrOpcode.MASKED_ATOMIC_CMP_AND_SWP, [a.sge(0, 8)], b,
        compare_add=0x22, compare_add_mask=0xFF, swap=0xAA00, swap_mask=0xFF00,
    )  # fmt: skip
    (wc,) = a.expect(WcStatus.SUCCESS)
    assert wc.opcode is WcOpcode.MASKED_COMP_SWAP
    assert int.from_bytes(a.view[:8], "little") == 0x1122
    assert int.from_bytes(b.view[:8], "little") == 0xAA22
    # The mask's bits are the top bits of fields: the carry out of each is lost.
    a.send(
        WrOpcode.MASKED_ATOMIC_FETCH_AND_ADD, [a.sge(0, 8)], b,
        compare_add=0x01DE, compare_add_mask=0x0080,
    )  # fmt: skip
    (wc,) = a.expect(WcStatus.SUCCESS)
    assert wc.opcode is WcOpcode.MASKED_FETCH_ADD
    assert int.from_bytes(b.view[:8], "little") == 0xAB00
