"""Words on work queue entries, completions and events."""

from __future__ import annotations

from bluebridge.device.layout.mlx4 import cqe, eqe, wqe
from bluebridge.device.mlx4.field_words.word import TableWords, ignored, told, used

_PARSE = "rings/work_requests.py"
_COMPLETIONS = "rings/completions.py: CompletionWriter"
_EVENTS = "rings/event_queues.py: EventQueues"
_OWNER = used("rings/send_queue.py: SendRing._peek", by_position=True)
_TOLD = told(f"{_EVENTS}.post_numbered", by_position=True)
_TYPE = told(f"{_EVENTS}.post_async", by_position=True)
_PRIORITY = "priorities and rates do not differ"

ENTRIES = (
    TableWords(
        wqe.CTRL,
        (
            (_OWNER, "owner"),
            (used("rings/send_queue.py: SendRing._execute", by_position=True), "ds"),
            (used(f"{_PARSE}: parse_connected", by_position=True), "opcode"),
            (used(f"{_PARSE}: _flag", by_position=True), "immediate cqe fence solicited"),
            (used("registers/blueflame.py: BlueFlame._push", by_position=True), "send_index"),
            (
                used(f"{_PARSE}: FrameReader.read", "as an opcode of its own", by_position=True),
                "lso",
            ),
            (
                used("rings/work_requests.py: FrameReader.read", by_position=True),
                "vlan_tag insert_vlan",
            ),
            (
                used("rings/work_requests.py: FrameReader.read", by_position=True),
                "tcp_udp_csum ip_csum",
            ),
            (used(f"{_PARSE}: FrameReader.read", "of frames", by_position=True), "loopback"),
            (
                used(
                    "rings/work_requests.py: parse_connected",
                    "of XRC; of frames it is part of the destination",
                    by_position=True,
                ),
                "srcrb",
            ),
            (ignored("entries are always carried out in order"), "strong_order"),
        ),
    ),
    TableWords(
        wqe.MLX_CTRL,
        (
            (_OWNER, "owner"),
            (used("rings/send_queue.py: SendRing._execute", by_position=True), "ds"),
            (used(f"{_PARSE}: PacketReader.read", by_position=True), "opcode"),
            (used(f"{_PARSE}: _flag", by_position=True), "cqe"),
            (ignored("the packet's own headers say it"), "vl15 sl rlid slr"),
            (ignored("the check sum is that of the fabric, whatever stands there"), "icrc"),
            (ignored(_PRIORITY), "sched_prio static_rate"),
            (ignored("the fabric brings what is for the own port"), "loopback"),
        ),
    ),
    TableWords(wqe.RADDR, ((used(f"{_PARSE}: _remote", by_position=True), "va rkey"),)),
    TableWords(wqe.ATOMIC, ((used(f"{_PARSE}: _atomic", by_position=True), "swap_add compare"),)),
    TableWords(
        wqe.MASKED_ATOMIC,
        ((used(f"{_PARSE}: _atomic", by_position=True), "swap_* compare compare_mask"),),
    ),
    TableWords(
        wqe.DATA, ((used(f"{_PARSE}: parse_data", by_position=True), "byte_count lkey va"),)
    ),
    TableWords(
        wqe.LSO, ((used(f"{_PARSE}: parse_large_send", by_position=True), "mss header_size"),)
    ),
    TableWords(
        wqe.INLINE_SEG,
        ((used(f"{_PARSE}: parse_data", by_position=True), "inline byte_count"),),
    ),
    TableWords(wqe.LOCAL_INVAL, ((used(f"{_PARSE}: _local", by_position=True), "key"),)),
    TableWords(
        wqe.FAST_REG,
        (
            (
                used(f"{_PARSE}: registration_of"),
                "flags key page_list start length page_shift",
            ),
            (used(f"{_PARSE}: registration_of", "MW_BIND_ERR unless 0"), "offset"),
        ),
    ),
    TableWords(
        wqe.BIND,
        (
            (
                used("rings/work_requests.py: binding_of", by_position=True),
                "flags1 flags2 new_rkey lkey va length",
            ),
        ),
    ),
    TableWords(
        wqe.AV,
        (
            (
                used("rings/work_requests.py: DatagramReader.read", by_position=True),
                "pd",
            ),
            (
                used("ports/paths.py: path_of_vector"),
                "g_slid gid_index hop_limit tclass flow_label dgid",
            ),
            (used("ports/paths.py: _tagged"), "vlan_present"),
            (used("ports/paths.py: path_of_vector"), "dlid"),
            (
                used("ports/paths.py: path_of_vector", "RoCE: as the PCP says"),
                "sl",
            ),
            (ignored("a datagram leaves by the queue pair's own port"), "port"),
            (ignored(_PRIORITY), "static_rate"),
            (ignored("the fabric brings what is for the own port"), "force_loopback"),
        ),
    ),
    TableWords(
        wqe.DATAGRAM,
        (
            (
                used("rings/work_requests.py: DatagramReader.read", by_position=True),
                "av dqpn qkey vlan dmac",
            ),
        ),
    ),
    TableWords(
        wqe.SRQ_NEXT,
        (
            (
                used("rings/shared_receive_queues.py: SharedReceiveRing.take", by_position=True),
                "next_wqe_index",
            ),
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
