"""Words on the context of a queue pair and the path in it."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.contexts import PATH, QPC
from bluebridge.device.mlx4.field_words.word import TableWords, ignored, told, used

_LOAD = used("pairs/hca_pair.py: HcaPair.load")
_ROUTE = used("ports/paths.py: path_of_context")
_GEOMETRY = used("pairs/ring_geometry.py: ring_geometry")
_RINGS = used("pair_factory.py: PairFactory._attach_rings")
_QUERY = told("commands/qp_commands.py: context_of")
_NO_MIGRATION = "path migration is not offered; told by QUERY_QP as it was written"
_ALWAYS = "messages go as fast as they can; told by QUERY_QP as it was written"
_FUNCTIONS = "of virtual functions, which there are not"


QUEUE_PAIR = (
    TableWords(
        QPC,
        (
            (
                _LOAD,
                "pd mtu msg_max uar remote_qpn qkey xrcd use_srq srqn fast_reg_enable remote_read "
                "remote_write remote_atomic min_rnr_timer retry_count rnr_retry sra_max rra_max "
                "pri_pkey_index no_vlan_strip keep_fcs pri_ack_timeout pri_counter_index pri_port",
            ),
            (used("pairs/role_of.py: role_of"), "service rss mtu_msgmax"),
            (_GEOMETRY, "log_rq_size log_rq_stride log_sq_size log_sq_stride"),
            (_RINGS, "page_offset log_page_size mtt_addr doorbell_record"),
            (used("pair_factory.py: PairFactory._memory"), "reserved_lkey"),
            (used("pair_factory.py: PairFactory._completions"), "cqn_send cqn_recv"),
            (used("commands/qp_commands.py: _merge_rtr"), "next_recv_psn pri_path"),
            (used("commands/qp_commands.py: _merge_rts"), "next_send_psn"),
            (
                _ROUTE,
                "roce_mode pri_vlan_valid pri_mylmc pri_mgid_index pri_hop_limit pri_tclass "
                "pri_flow_label pri_rgid pri_sched_queue pri_vlan_index pri_dmac",
            ),
            (
                used("ports/paths.py: path_of_context", "on InfiniBand"),
                "pri_grh pri_rlid",
            ),
            (_QUERY, "state local_qpn msn rq_wqe_counter sq_wqe_counter"),
            (
                ignored("the port decides; Linux names another one in RTR2RTS"),
                "pri_link_type",
            ),
            (ignored(_NO_MIGRATION), "pm_state alt_path"),
            (ignored(_ALWAYS), "pri_static_rate rate_limit"),
            (ignored("each message is answered"), "ack_freq"),
            (ignored("how the adapter fetches entries is its own affair"), "sq_no_prefetch"),
            (ignored("source ports come from the numbers of both queue pairs"), "roce_entropy"),
            (
                ignored("kept inside of the engines; told as 0"),
                "last_acked_psn ssn current_retry current_rnr_retry",
            ),
            (ignored("acknowledgements tell no credits at all"), "invalid_credits"),
            (
                ignored("leave to store short receives in completions, which need not be taken"),
                "inline_receive",
            ),
            (ignored("not announced: no header is told apart"), "header_separation"),
            (ignored("not announced: keys are whole"), "base_mkey_used"),
            (ignored("priorities do not differ"), "pri_feup"),
            (ignored(_FUNCTIONS), "pri_fvl_rx"),
            (ignored("the customer VLAN of the path is used"), "pri_svlan_valid"),
            (
                ignored("the fabric brings what is for the own port, and no copies to the sender"),
                "pri_force_loopback pri_source_check",
            ),
        ),
    ),
    TableWords(PATH, ((ignored("the path inside of QPC, for programs: words there"), "*"),)),
)
