"""qperf: bandwidth, latency and message rate, its own way of making connections."""

from __future__ import annotations

from bluebridge.host_tools.campaigns.conformance.program import Program
from bluebridge.host_tools.campaigns.conformance.setups import INFINIBAND, ROCE, Setup
from bluebridge.host_tools.programs.perftest import listening

RELIABLE = (
    "rc_bw",
    "rc_bi_bw",
    "rc_lat",
    "rc_rdma_read_bw",
    "rc_rdma_read_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_lat",
    "rc_rdma_write_poll_lat",
    "rc_compare_swap_mr",
    "rc_fetch_add_mr",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
)
UNRELIABLE = (
    "uc_bw",
    "uc_bi_bw",
    "uc_lat",
    "uc_rdma_write_bw",
    "uc_rdma_write_lat",
    "uc_rdma_write_poll_lat",
    "ud_bw",
    "ud_bi_bw",
    "ud_lat",
)
TCP = ("tcp_bw", "tcp_lat")
_PORT = 19765


def programs() -> list[Program]:
    """qperf 0.4.11 sets no GRH, so on Ethernet its connections go through rdma_cm (`-cm 1`)."""
    return [
        *(_program(f"-cm 1 {test}", (ROCE, INFINIBAND)) for test in RELIABLE),
        *(_program(test, (INFINIBAND,)) for test in (*RELIABLE, *UNRELIABLE)),
        *(_program(test, (ROCE, INFINIBAND)) for test in TCP),
    ]


def _program(words: str, setups: tuple[Setup, ...]) -> Program:
    return Program(
        "qperf",
        words,
        server="qperf",
        ready=listening(_PORT),
        lasting=True,
        client=f"qperf {{server}} -t 1 {words}",
        expect=r"(bw|latency|msg_rate|tests?) +=|successful",
        setups=setups,
        short=words == "-cm 1 rc_lat",
    )
