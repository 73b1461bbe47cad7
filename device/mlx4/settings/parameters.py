"""Settings of INIT_HCA: table sizes, ICM addresses of tables; and how commands are refused."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA
from bluebridge.device.layout.mlx4.commands import Status

UNICAST_STEERING = 1 << 3
IPOIB_CHECKSUMS, FLOW_STEERING = 1 << 3, 1 << 6
LARGE_EQES, LARGE_CQES = 1 << 29, 1 << 30


class HighRate(IntEnum):
    """The modes of the fast A0 table, in which rules for destination addresses are looked up."""

    DEFAULT = 0
    DYNAMIC = 1
    STATIC = 2
    DISABLED = 3


@dataclass(slots=True)
class Parameters:
    """Table sizes as base-2 logarithms, ICM addresses of two tables; `raw` is the mailbox.

    `unicast_steering`: groups name the queue pairs of unicast addresses, too; `flow_steering`:
    rules name queue pairs in place of groups, for the queue pairs of UD in `datagram_range` of
    unicast messages, too; `ipoib_checksums`: completions of datagrams tell of IP packets in them.

    The parts of an adapter share one object: INIT_HCA fills it in place with `take`, reset and
    CLOSE_HCA empty it with `clear`. `initialised` says whether an INIT_HCA is in force.
    """

    initialised: bool = False
    raw: bytes = b""
    log_qps: int = 0
    log_mpts: int = 0
    log_srqs: int = 0
    log_cqs: int = 0
    log_eqs: int = 0
    log_mc_hash: int = 0
    log_mc_entries: int = 0
    log_mc_entry_size: int = 0
    log_read_resources: int = 0
    mtt_base: int = 0
    dmpt_base: int = 0
    high_rate: int = HighRate.DISABLED
    log_rules: int = 0
    log_rule_size: int = 0
    large_cqes: bool = False
    unicast_steering: bool = False
    flow_steering: bool = False
    ipoib_checksums: bool = False
    datagram_range: range = range(0)

    @classmethod
    def of_mailbox(cls, raw: bytes) -> Parameters:
        """Return the parameters in an INIT_HCA mailbox; low bits of a base hold its logarithm."""
        get = INIT_HCA.get
        flags = get(raw, "flags")
        return cls(
            initialised=True, raw=raw, log_qps=get(raw, "log_qps") & 0x1F,
            log_srqs=get(raw, "log_srqs") & 0x1F, log_cqs=get(raw, "log_cqs") & 0x1F,
            log_eqs=get(raw, "log_eqs") & 0x1F, log_mpts=get(raw, "log_mpts") & 0x3F,
            log_mc_hash=get(raw, "log_mc_hash_size") & 0x1F,
            log_mc_entries=get(raw, "log_mc_table_size") & 0x1F,
            log_mc_entry_size=get(raw, "log_mc_entry_size") & 0x1F,
            log_read_resources=get(raw, "log_rd_per_qp") & 0x7, mtt_base=get(raw, "mtt_base"),
            dmpt_base=get(raw, "dmpt_base"), large_cqes=bool(get(raw, "eqe_cqe_size") & LARGE_CQES),
            unicast_steering=bool(get(raw, "uc_steering") & UNICAST_STEERING),
            flow_steering=bool(flags & FLOW_STEERING), high_rate=get(raw, "high_rate_mode"),
            log_rules=get(raw, "log_rule_table_size") & 0x1F,
            log_rule_size=get(raw, "log_rule_entry_size") & 0x1F,
            ipoib_checksums=bool(flags & IPOIB_CHECKSUMS),
        )  # fmt: skip

    def take(self, other: Parameters) -> None:
        """Become equal to `other`."""
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))

    def clear(self) -> None:
        """Return to the values before INIT_HCA."""
        self.take(Parameters())


class CommandError(Exception):
    """A firmware command ends with a status other than OK; `reason` goes into the log."""

    def __init__(self, status: Status, reason: str = "") -> None:
        super().__init__(f"{status.name}: {reason}" if reason else status.name)
        self.status = status
        self.reason = reason
