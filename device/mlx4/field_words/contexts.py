"""Words on contexts of regions, queues and queue pairs, and on tables that map memory."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import CQC, EQC, MAP_ENTRY, MPT, RSS, SRQC, WRITE_MTT
from bluebridge.device.mlx4.field_words.word import TableWords, checked, ignored, told, used

_ENTRY = "memory/protection_entry.py: region_of_entry"
_EQS = "rings/event_queues.py: EventQueues"
_CQ = "rings/completion_queues.py: CompletionQueue"
_SRQ = "rings/shared_receive_queues.py: SharedReceiveRing"
_FIRMWARE = "commands/firmware_commands.py"
_STATUS = "software's word on who owns the queue; the command says so"

CONTEXTS = (
    TableWords(
        MPT,
        (
            (
                used(_ENTRY),
                "status physical region bound_to_qp key pd en_inv fast_reg start length len64 "
                "mtt_sz entity_size",
            ),
            (used("memory/protection_table.py: ProtectionTable._load_pages"), "mtt_addr"),
            (
                used(_ENTRY, "as one word of rights", by_position=True),
                "bind_enable remote_atomic remote_write remote_read local_write local_read",
            ),
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
            (
                used(f"{_EQS}.create"),
                "state overrun_ignore page_offset log_size vector log_page_size mtt_addr",
            ),
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
            (
                used(f"{_CQ}.__init__"),
                "overrun_ignore uar eqn period max_count doorbell_record log_size",
            ),
            (used(f"{_CQ}s._form_of"), "timestamps"),
            (used(f"{_CQ}s.buffer_of"), "page_offset log_page_size mtt_addr"),
            (checked(f"{_CQ}s.create", Status.BAD_PARAM, "0"), "collapsed"),
            (told(f"{_CQ}.query"), "last_notified consumer_index producer_index"),
            (ignored(_STATUS), "status"),
            (ignored("kept inside of the device, told as it was written"), "solicit_producer"),
        ),
    ),
    TableWords(
        SRQC,
        (
            (
                used(f"{_SRQ}.__init__"),
                "log_size log_stride xrcd page_offset cqn log_page_size mtt_addr pd "
                "doorbell_record",
            ),
            (told(f"{_SRQ}.query"), "srqn limit_watermark wqe_counter"),
            (ignored(_STATUS), "state"),
            (ignored("the doorbell record says how many entries are posted"), "wqe_count"),
        ),
    ),
    TableWords(
        RSS,
        (
            (
                used("pairs/spreading.py: spreader_of"),
                "log_table_size base_qpn default_qpn hash_fn flags key base_qpn_udp",
            ),
        ),
    ),
    TableWords(MAP_ENTRY, ((used(f"{_FIRMWARE}: _map_entries"), "virtual page log_pages"),)),
    TableWords(WRITE_MTT, ((used(f"{_FIRMWARE}: write_mtt"), "offset"),)),
)
