"""Words on the context of a queue pair and the path in it."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.contexts import PATH, QPC
from bluebridge.device.mlx4.field_words.word import TableWords, ignored, told

_QUERY = told("commands/qp_commands.py: context_of")
_NO_MIGRATION = "path migration is not offered; told by QUERY_QP as it was written"
_ALWAYS = "messages go as fast as they can; told by QUERY_QP as it was written"
_FUNCTIONS = "of virtual functions, which there are not"

QUEUE_PAIR = (
    TableWords(
        QPC,
        (
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
