"""Words on work queue entries, completions and events."""

from __future__ import annotations

from bluebridge.device.layout.mlx4 import cqe, eqe, wqe
from bluebridge.device.mlx4.field_words.word import TableWords, ignored, told

_COMPLETIONS = "rings/completions.py: CompletionWriter"
_EVENTS = "rings/event_queues.py: EventQueues"
_TOLD = told(f"{_EVENTS}.post_numbered", by_position=True)
_TYPE = told(f"{_EVENTS}.post_async", by_position=True)
_PRIORITY = "priorities and rates do not differ"

ENTRIES = (
    TableWords(
        wqe.CTRL,
        ((ignored("entries are always carried out in order"), "strong_order"),),
    ),
    TableWords(
        wqe.MLX_CTRL,
        (
            (ignored("the packet's own headers say it"), "vl15 sl rlid slr"),
            (ignored("the check sum is that of the fabric, whatever stands there"), "icrc"),
            (ignored(_PRIORITY), "sched_prio static_rate"),
            (ignored("the fabric brings what is for the own port"), "loopback"),
        ),
    ),
    TableWords(
        wqe.AV,
        (
            (ignored("a datagram leaves by the queue pair's own port"), "port"),
            (ignored(_PRIORITY), "static_rate"),
            (ignored("the fabric brings what is for the own port"), "force_loopback"),
        ),
    ),
    TableWords(
        cqe.CQE,
        (
            (
                told(f"{_COMPLETIONS}.complete_receive", by_position=True),
                "qpn immediate remote_qpn byte_count wqe_index opcode",
            ),
            (
                told(f"{_COMPLETIONS}.complete_datagram", by_position=True),
                "grh path_bits sl_vid smac cvlan_present checksum",
            ),
            (told(f"{_COMPLETIONS}.complete_send", by_position=True), "is_send"),
            (
                told("rings/completion_queues.py: CompletionQueue.post", by_position=True),
                "owner",
            ),
            (
                ignored("told as 0: datagrams have customer tags only"),
                "svlan_present",
            ),
        ),
    ),
    TableWords(
        cqe.FRAME_CQE,
        (
            (
                told("rings/completions.py: frame_cqe", by_position=True),
                "cvlan_present svlan_present qpn rss_hash vlan_tag status bad_fcs byte_count "
                "wqe_index checksum opcode",
            ),
            (
                told("rings/completion_queues.py: CompletionQueue._write", by_position=True),
                "owner",
            ),
            (ignored("told as 0: software looks for extension headers itself"), "ipv6_extensions"),
        ),
    ),
    TableWords(
        cqe.ERROR_CQE,
        (
            (
                told(f"{_COMPLETIONS}._error", by_position=True),
                "qpn wqe_index vendor_syndrome syndrome is_send opcode",
            ),
            (
                told("rings/completion_queues.py: CompletionQueue.post", by_position=True),
                "owner",
            ),
        ),
    ),
    TableWords(
        eqe.EQE,
        (
            (_TYPE, "type subtype data"),
            (told(f"{_EVENTS}._write", by_position=True), "owner"),
        ),
    ),
    TableWords(
        eqe.COMP_EQE,
        (
            (told("rings/completion_queues.py: CompletionQueue.__init__"), "type cqn"),
            (ignored("told as 0: there are no others"), "subtype"),
        ),
    ),
    *(
        TableWords(table, ((_TYPE, "type subtype"), (_TOLD, number)))
        for table, number in ((eqe.QP_EQE, "qpn"), (eqe.SRQ_EQE, "srqn"), (eqe.EQ_EQE, "eqn"))
    ),
    TableWords(
        eqe.CQ_ERROR_EQE,
        (
            (_TYPE, "type subtype"),
            (told("rings/completion_queues.py: CompletionQueue._break"), "cqn syndrome"),
        ),
    ),
    TableWords(
        eqe.CMD_EQE,
        (
            (_TYPE, "type subtype"),
            (
                told("commands/register.py: CommandRegister._complete"),
                "token status out_param",
            ),
        ),
    ),
    TableWords(
        eqe.PORT_EQE,
        ((_TYPE, "type subtype"), (told("ports/events.py: PortEventWriter.link_changed"), "port")),
    ),
    TableWords(
        eqe.PORT_MNG_EQE,
        (
            (_TYPE, "type subtype"),
            (
                told("ports/events.py: PortEventWriter.management_changed"),
                "port sm_lid lid changed sm_sl gid_prefix",
            ),
        ),
    ),
)
