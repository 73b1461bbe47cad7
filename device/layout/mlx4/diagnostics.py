"""The answer of DIAG_RPRT: transport counters of a port, or of all ports together."""

from __future__ import annotations

from bluebridge.device.layout.fields import Struct, u32

DIAG_SIZE = 0x200
DIAGNOSTICS = Struct(
    "DIAGNOSTICS",
    DIAG_SIZE,
    [
        u32("rq_num_lle", 0x00, "receives that were too short"),
        u32("sq_num_lle", 0x04, "messages that may not be so long"),
        u32("rq_num_lqpoe", 0x08),
        u32("sq_num_lqpoe", 0x0C, "work requests that made no sense"),
        u32("rq_num_lpe", 0x18, "receives whose memory is not accessible"),
        u32("sq_num_lpe", 0x1C),
        u32("rq_num_wrfe", 0x20, "receives that were flushed"),
        u32("sq_num_wrfe", 0x24),
        u32("sq_num_mwbe", 0x2C),
        u32("sq_num_bre", 0x34, "answers that made no sense"),
        u32("sq_num_rire", 0x44, "requests that the peer found invalid"),
        u32("rq_num_rire", 0x48),
        u32("sq_num_rae", 0x4C, "requests whose remote memory is not accessible"),
        u32("rq_num_rae", 0x50),
        u32("sq_num_roe", 0x54),
        u32("sq_num_tree", 0x5C, "retries that were used up"),
        u32("sq_num_rree", 0x64, "the same for a receiver that is not ready"),
        u32("rq_num_rnr", 0x68, "RNR NAKs sent"),
        u32("sq_num_rnr", 0x6C, "RNR NAKs received"),
        u32("rq_num_oos", 0x100, "gaps in the sequence: NAKs sent"),
        u32("sq_num_oos", 0x104, "sequence NAKs received"),
        u32("rq_num_dup", 0x130, "requests that came again"),
        u32("sq_num_to", 0x134, "acknowledge time-outs"),
    ],
    source="Linux ib/main.c: diag_basic, diag_ext",
)
