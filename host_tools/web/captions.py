"""One sentence for each step of an activity, for readers who do not know the hardware's words."""

from __future__ import annotations

from bluebridge.host_tools.analyzer.activity import Activity
from bluebridge.host_tools.analyzer.transaction import OK, Role, Transaction

CAPTIONS = {
    Role.DOORBELL: "the driver stores {size} in its UAR page: go on from {entry}",
    Role.BLUEFLAME: "the driver stores {size} of {entry} itself in its BlueFlame page",
    Role.ENTRY: "the HCA takes {entry} from the BlueFlame page and need not fetch it",
    Role.WQE: "the HCA fetches {entry} from memory: what to do, and with which bytes",
    Role.PAYLOAD_READ: "the HCA fetches {size} to send from memory",
    Role.REQUEST: "the request leaves for the other HCA, with {size} of data",
    Role.RECEIVE_WQE: "the HCA fetches a receive entry: where arriving bytes may go",
    Role.PAYLOAD_WRITE: "the HCA writes the {size} that arrived to memory",
    Role.RESPONSE: "the answer goes back: did the request arrive, and was it allowed",
    Role.CQE: "the HCA writes a completion entry to memory: {outcome}",
    Role.EQE: "the HCA writes an event entry to memory: something is there for the driver",
    Role.INTERRUPT: "the device interrupts the processor: look at the event queue",
    Role.DOORBELL_RECORD: "the HCA reads in memory how far the program has come in its queue",
    Role.CQ_ARM: "the driver asks for an event when the next completion entry comes",
    Role.EQ_ARM: "the driver says how far it has read the events, and asks for the next interrupt",
    Role.REGISTER_READ: "the driver reads a register of the device",
    Role.REGISTER_WRITE: "the driver writes a register of the device",
    Role.CONFIG: "the host reads or writes the configuration space of the function",
    Role.TABLE: "the HCA uses one of its tables in memory",
    Role.DESCRIPTOR: "the DMA engine fetches a descriptor: from where to where to copy",
    Role.COPY_READ: "the DMA engine reads {size} to copy",
    Role.COPY_WRITE: "the DMA engine writes {size} where they belong",
    Role.COMPLETION_WORD: "the DMA engine writes to memory how far it has come",
    Role.WINDOW_STORE: "the driver stores {size} in a window: they reach the other host's memory",
    Role.WINDOW_LOAD: "the driver loads {size} from a window, so from the other host's memory",
    Role.WINDOW: "the bridge passes {size} on to the other host's memory",
}
"""The sentences by the role of a step; other roles have a text of their own in the log."""


def caption(one: Transaction, activity: Activity) -> str:
    """Return the sentence of a step; empty for one that the log itself describes in words."""
    transfer = activity.transfer
    entry = f"entry {transfer.index}" if transfer is not None else "the next entry"
    done = activity.status in ("", OK)
    return CAPTIONS.get(one.role, "").format(
        size=f"{one.length} byte{'s' * (one.length != 1)}",
        entry=entry,
        outcome="the work is done" if done else f"the work failed with {activity.status}",
    )
