"""Operations of send work requests, as plain integers: the first ten are those of `Op`."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.net.operations import Op

SEND: Final = 0
SEND_IMM: Final = 1
SEND_INV: Final = 2
WRITE: Final = 3
WRITE_IMM: Final = 4
READ: Final = 5
COMPARE_SWAP: Final = 6
FETCH_ADD: Final = 7
MASKED_COMPARE_SWAP: Final = 8
MASKED_FETCH_ADD: Final = 9
NOP: Final = 10
LARGE_SEND: Final = 11
INVALIDATE: Final = 12
BIND: Final = 13
REGISTER: Final = 14

OPS: Final = tuple(Op)
"""Request `Op` by operation number."""
ATOMICS: Final = frozenset((COMPARE_SWAP, FETCH_ADD, MASKED_COMPARE_SWAP, MASKED_FETCH_ADD))
LOCAL: Final = frozenset((NOP, REGISTER, INVALIDATE, BIND))
"""Operations that stay inside of the adapter."""
UNRELIABLE: Final = frozenset((SEND, SEND_IMM, WRITE, WRITE_IMM))
"""Operations that UC queue pairs may ask for."""
