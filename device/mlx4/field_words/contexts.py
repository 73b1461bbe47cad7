"""Words on contexts of regions, queues and queue pairs, and on tables that map memory."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import CQC, EQC, MPT, SRQC
from bluebridge.device.mlx4.field_words.word import TableWords, checked, ignored, told

_ENTRY = "memory/protection_entry.py: region_of_entry"
_EQS = "rings/event_queues.py: EventQueues"
_CQ = "rings/completion_queues.py: CompletionQueue"
_SRQ = "rings/shared_receive_queues.py: SharedReceiveRing"
_STATUS = "software's word on who owns the queue; the command says so"

CONTEXTS = (
    TableWords(
        MPT,
        (
            (
                checked(_ENTRY, Status.BAD_PARAM, "0"),
                "first_byte_offset mtt_rep",
            ),
            (ignored("how the adapter orders its own reads"), "mio"),
            (ignored("the rights say whether peers may do atomics"), "atomic_enable"),
            (ignored("of windows: a bind request names the region"), "lkey"),
            (ignored("counted inside of the device, told as it was written"), "win_cnt"),
        ),
    ),
    TableWords(
        EQC,
        (
            (told(f"{_EQS}.query"), "consumer_index producer_index"),
            (ignored(_STATUS), "status"),
            (
                ignored("every event has an entry and an armed queue interrupts at once"),
                "ec period max_count",
            ),
        ),
    ),
    TableWords(
        CQC,
        (
            (checked(f"{_CQ}s.create", Status.BAD_PARAM, "0"), "collapsed"),
            (told(f"{_CQ}.query"), "last_notified consumer_index producer_index"),
            (ignored(_STATUS), "status"),
            (ignored("kept inside of the device, told as it was written"), "solicit_producer"),
        ),
    ),
    TableWords(
        SRQC,
        (
            (told(f"{_SRQ}.query"), "srqn limit_watermark wqe_counter"),
            (ignored(_STATUS), "state"),
            (ignored("the doorbell record says how many entries are posted"), "wqe_count"),
        ),
    ),
)
