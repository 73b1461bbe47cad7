"""Capabilities by groups: those the card has, and those in force after SET_HCA_CAP."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5 import caps, page_faults
from bluebridge.device.layout.mlx5.caps import CapGroup
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.init_segment import LOG_BLUEFLAME_REGISTER
from bluebridge.device.layout.mlx5.user_contexts import UserRight
from bluebridge.device.mlx5.settings.refused import Refused

CLOCK_KHZ: Final = 1_000_000
ROCE_ADDRESSES: Final = 128
COUNTER_SETS: Final = 64
LOG_MAX_EQS: Final = 6
"""There may be 64 event queues; drivers keep 4 of them back."""
LOG_MAX_CONTEXTS: Final = 10
CONTEXT_RIGHTS: Final = UserRight.RAW_SEND
"""Rights that a user context can have."""
LOG_MAX_KEYS: Final = 18
"""A key costs the server 700 bytes: at most some 180 MB."""
LOG_MAX_FLOWS: Final = 17
"""Most entries of all flow tables, which cost some 100 MB."""
LOG_MAX_TABLE: Final = 20
"""Most indices of one flow table."""

_GENERAL: Final = {
    "page_request_disable": 1,
    "log_max_srq_size": 15, "log_max_qp_size": 15, "log_max_qp": 17, "log_max_srq": 16,
    "log_max_cq_size": 22, "log_max_cq": 16, "log_max_eq_size": 22, "log_max_mkey": LOG_MAX_KEYS,
    "log_max_eq": LOG_MAX_EQS, "log_max_klm_list_size": 16,
    "log_max_ra_req_qp": 4, "log_max_ra_res_qp": 4,
    # Without it Linux reads counters of ports by MAD_IFC (ib/mad.c: process_pma_cmd).
    "vport_counters": 1, "max_qp_cnt": COUNTER_SETS, "out_of_seq_cnt": 1,
    "retransmission_q_counters": 1, "enhanced_error_q_counters": 1,
    # Only who manages ports may set pause (core/en_ethtool.c: mlx5e_set_pauseparam).
    "vport_group_manager": 1,
    "nic_flow_table": 1, "mcam_reg": 1, "local_ca_ack_delay": 16, "port_type": 1, "num_ports": 1,
    "log_max_msg": 30, "cqe_version": 1,
    "eth_net_offloads": 1, "roce": 1, "atomic": 1,
    # All three are needed for a key to the whole address space (ib/odp.c: internal_fill_odp_caps).
    "pg": 1, "fixed_buffer_size": 1, "null_mkey": 1, "umr_extended_translation_offset": 1,
    "imaicl": 1, "qkv": 1, "pkv": 1,
    "cq_oi": 1, "cq_resize": 1, "cq_moderation": 1, "cq_period_mode_modify": 1,
    # Linux' RDMA driver does not start without XRC (ib/main.c: mlx5_ib_dev_res_init).
    "xrc": 1, "ud": 1, "uc": 1, "rc": 1,
    "uar_size": 5, "log_pg_sz": 12, "driver_version": 1, "log_bf_reg_size": LOG_BLUEFLAME_REGISTER,
    "max_wqe_sz_sq": 1024, "max_wqe_sz_rq": 512, "max_qp_mcg": 240, "log_max_mcg": 13,
    "log_max_transport_domain": 8, "log_max_pd": 16, "log_max_xrcd": 8,
    "log_max_rq": 12, "log_max_sq": 12, "log_max_tir": 12, "log_max_tis": 10,
    "disable_local_lb_uc": 1, "disable_local_lb_mc": 1,
    "basic_cyclic_rcv_wqe": 1, "log_max_rmp": 16, "log_max_rqt": 12, "log_max_rqt_size": 8,
    "log_max_tis_per_sq": 3, "roce_rw_supported": 1, "log_max_wq_sz": 15,
    "log_max_vlan_list": 12, "log_max_current_mc_list": 11, "log_max_current_uc_list": 7,
    "device_frequency_mhz": CLOCK_KHZ // 1000, "device_frequency_khz": CLOCK_KHZ,
    "num_of_uars_per_page": 1, "native_port_num": 1,
    "log_max_uctx": LOG_MAX_CONTEXTS, "log_max_umem": 16, "uctx_cap": CONTEXT_RIGHTS,
    "umem_uid_0": 1,
}  # fmt: skip

_ETHERNET: Final = {
    "csum_cap": 1, "vlan_cap": 1, "self_lb_en_modifiable": 1, "max_lso_cap": 18,
    "wqe_inline_mode": 2, "rss_ind_tbl_cap": 8,
}  # fmt: skip

_ATOMIC: Final = {"endianness_mode_1_supported": 1, "operations": 3, "sizes_qp": 8}
_MASKED_ATOMIC: Final = {**_ATOMIC, "operations": 0xF, "sizes_qp": 4 | 8}

_ROCE: Final = {
    "l3_type": 6, "roce_version": 5, "r_roce_dest_udp_port": 4791,
    "r_roce_max_src_udp_port": 0xFFFF, "r_roce_min_src_udp_port": 0xC000,
    "roce_address_table_size": ROCE_ADDRESSES,
}  # fmt: skip

_ODP: Final = dict.fromkeys(
    (*(f"{service}_{what}" for service in ("rc", "xrc")
       for what in ("send", "receive", "write", "read", "atomic", "srq_receive")), "ud_send"), 1
)  # fmt: skip

# Linux puts its anchor table at level 58 and, with 119 or more, wants tables for bonding too
# (core/fs_core.c: root_fs).
_NIC_RECEIVE: Final = {
    "ft_support": 1, "flow_modify_en": 1, "modify_root": 1, "identified_miss_table_mode": 1,
    "flow_table_modify": 1, "log_max_ft_size": LOG_MAX_TABLE, "max_ft_level": 64,
    "log_max_ft_num": 12, "log_max_destination": 8, "log_max_flow": LOG_MAX_FLOWS,
    "field_support": caps.MATCHED_FIELDS,
}  # fmt: skip


def _group(table: Struct, values: dict[str, int]) -> bytes:
    return bytes(table.pack(values))


def _flow_tables() -> bytes:
    group = bytearray(caps.GROUP_BYTES)
    at = caps.NIC_RECEIVE
    group[at : at + caps.FLOW_PROPERTIES.size] = caps.FLOW_PROPERTIES.pack(_NIC_RECEIVE)
    return bytes(group)


MOST: Final = {
    CapGroup.GENERAL: _group(caps.GENERAL, _GENERAL),
    CapGroup.ETHERNET: _group(caps.ETHERNET, _ETHERNET),
    CapGroup.ATOMIC: _group(caps.ATOMIC, _ATOMIC),
    CapGroup.ROCE: _group(caps.ROCE, _ROCE),
    CapGroup.ODP: _group(page_faults.ODP, _ODP),
    CapGroup.FLOW_TABLE: _flow_tables(),
    # There is nothing of these, which rdma-core's tests want to hear from the groups themselves.
    CapGroup.DEVICE_MEMORY: bytes(caps.GROUP_BYTES),
    CapGroup.QOS: bytes(caps.GROUP_BYTES),
}
"""The groups that there are, with what an adapter without BlueFlame and masked atomics can."""


class Capabilities:
    """The groups of capabilities as they are now."""

    def __init__(self, *, blueflame: bool = False, masked_atomics: bool = False) -> None:
        self._most = dict(MOST)
        if masked_atomics:
            self._most[CapGroup.ATOMIC] = _group(caps.ATOMIC, _MASKED_ATOMIC)
        if blueflame:
            self._most[CapGroup.GENERAL] = _group(caps.GENERAL, {**_GENERAL, "bf": 1})
        self._now = dict(self._most)

    def reset(self) -> None:
        """Offer again all that the adapter can."""
        self._now = dict(self._most)

    def most(self, group: int) -> bytes:
        """Return a group with what the adapter can; raises `Refused` for one that is not there."""
        return self._most[self._known(group)]

    def now(self, group: int) -> bytes:
        """Return a group as software set it; raises `Refused` for one that is not there."""
        return self._now[self._known(group)]

    def get(self, group: CapGroup, name: str) -> int:
        """Return a field of a group as it is now."""
        return caps.BY_GROUP[group].get(self._now[group], name)

    def choose(self, group: int, wanted: bytes) -> None:
        """Store what software wants of a group; raises `Refused` for one that is not there.

        Of the group ATOMIC only the order of results is taken: Linux writes zeros to all other
        fields of it (core/main.c: handle_hca_cap_atomic).
        """
        known = self._known(group)
        data = wanted[: caps.GROUP_BYTES].ljust(caps.GROUP_BYTES, b"\0")
        if known is CapGroup.ATOMIC:
            kept = bytearray(self._now[known])
            mode = caps.ATOMIC.get(data, "request_endianness_mode")
            caps.ATOMIC.set(kept, "request_endianness_mode", mode)
            data = bytes(kept)
        self._now[known] = data

    @staticmethod
    def _known(group: int) -> CapGroup:
        try:
            found = CapGroup(group)
        except ValueError:
            found = None
        if found is None or found not in MOST:
            raise Refused(Status.BAD_PARAM, f"no group {group:#x} of capabilities")
        return found
