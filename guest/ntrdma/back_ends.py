"""The back ends by which NTRDMA reaches its peer, and the words that a user chooses by."""

from __future__ import annotations

from typing import Final

NTB_DMA: Final = "ntb+dma"
"""The back end through a bridge whose windows a DMA engine writes."""
NTB_CPU: Final = "ntb+cpu"
"""The back end through a bridge whose windows the processor writes."""
BRIDGE_BACK_ENDS = NTB_DMA, NTB_CPU
REGISTERED: Final = "+registered"
"""The end of a word for a bridge whose window shows only the memory that verbs and rings use."""
BACK_END: Final = NTB_DMA
"""The back end that is used unless a user says another one."""
_REGISTERED = tuple(each + REGISTERED for each in BRIDGE_BACK_ENDS)
WORDS = (*BRIDGE_BACK_ENDS, *_REGISTERED, "s:ADDRESS:PORT", "c:ADDRESS:PORT")
"""All words for back ends: `s:` waits for a peer over TCP, `c:` connects to it."""
HELP = f"{', '.join(WORDS)} (default {BACK_END})"
