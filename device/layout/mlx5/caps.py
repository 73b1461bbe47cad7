"""Groups of capabilities of QUERY_HCA_CAP and SET_HCA_CAP: what an adapter can, by its fields.

Linux `mlx5_ifc.h: cmd_hca_cap, per_protocol_networking_offload_caps, atomic_caps, roce_cap,
flow_table_nic_cap`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Struct, u32, u64, word
from bluebridge.device.layout.mlx5.page_faults import ODP

GROUP_BYTES: Final = 0x1000


class CapGroup(IntEnum):
    """Groups of capabilities; QUERY_HCA_CAP has twice the number in `op_mod`, plus 1 for current.

    SET_HCA_CAP has twice the number (include/linux/mlx5/device.h: mlx5_cap_type).
    """

    GENERAL = 0x00
    ETHERNET = 0x01
    ODP = 0x02
    ATOMIC = 0x03
    ROCE = 0x04
    IPOIB = 0x05
    IPOIB_ENHANCED = 0x06
    FLOW_TABLE = 0x07
    ESWITCH_FLOW_TABLE = 0x08
    ESWITCH = 0x09
    QOS = 0x0C
    DEBUG = 0x0D
    DEVICE_MEMORY = 0x0F
    TLS = 0x11
    VDPA = 0x13
    DEVICE_EVENT = 0x14
    IPSEC = 0x15
    CRYPTO = 0x1A
    MACSEC = 0x1F
    GENERAL_2 = 0x20
    PORT_SELECTION = 0x25
    ADVANCED_VIRTUALIZATION = 0x26


GENERAL = Struct(
    "CAP_GENERAL",
    GROUP_BYTES,
    word("page_request_disable", 0x00, 25, doc="adapter asks for no pages by events"),
    word("hca_cap_2", 0x04, 31, doc="there is a group GENERAL_2"),
    word("vhca_id", 0x04, 15, 0),
    word("log_max_srq_size", 0x10, 31, 24),
    word("log_max_qp_size", 0x10, 23, 16),
    word("log_max_qp", 0x10, 4, 0),
    word("log_max_srq", 0x14, 20, 16),
    word("max_sgl_for_optimized_performance", 0x18, 31, 24),
    word("log_max_cq_size", 0x18, 23, 16),
    word("log_max_cq", 0x18, 4, 0),
    word("log_max_eq_size", 0x1C, 31, 24),
    word("log_max_mkey", 0x1C, 21, 16),
    word("log_max_eq", 0x1C, 3, 0),
    word("fixed_buffer_size", 0x20, 23),
    word("umr_extended_translation_offset", 0x20, 7),
    word("null_mkey", 0x20, 6),
    word("log_max_klm_list_size", 0x20, 5, 0),
    word("log_max_ra_req_qp", 0x28, 21, 16, "reads and atomics that a queue pair may have out"),
    word("log_max_ra_res_qp", 0x28, 5, 0, "and that it may have to answer"),
    word("end_pad", 0x2C, 31),
    word("gid_table_size", 0x2C, 15, 0, "of InfiniBand"),
    word("out_of_seq_cnt", 0x30, 31),
    word("vport_counters", 0x30, 30),
    word("retransmission_q_counters", 0x30, 29),
    word("max_qp_cnt", 0x30, 25, 16, "sets of counters"),
    word("pkey_table_size", 0x30, 15, 0, "128 << n"),
    word("vport_group_manager", 0x34, 31),
    word("eth_virt", 0x34, 28),
    word("nic_flow_table", 0x34, 25, doc="there is a group FLOW_TABLE"),
    word("eswitch_manager", 0x34, 24),
    word("mcam_reg", 0x34, 22, doc="there is a register MCAM"),
    word("pcam_reg", 0x34, 21, doc="there is a register PCAM"),
    word("local_ca_ack_delay", 0x34, 20, 16),
    word("port_module_event", 0x34, 15),
    word("enhanced_error_q_counters", 0x34, 14),
    word("ports_check", 0x34, 13),
    word("port_type", 0x34, 9, 8, "0 = InfiniBand, 1 = Ethernet"),
    word("num_ports", 0x34, 7, 0),
    word("log_max_msg", 0x38, 28, 24),
    word("max_tc", 0x38, 19, 16),
    word("stat_rate_support", 0x3C, 31, 16),
    word("cqe_version", 0x3C, 3, 0),
    word("striding_rq", 0x40, 30),
    word("umr_modify_entity_size_disabled", 0x40, 24),
    word("umr_fence", 0x40, 21, 20),
    word("cmdif_checksum", 0x40, 15, 14),
    word("sctr_data_cqe", 0x40, 10),
    word("dct", 0x40, 5),
    word("qos", 0x40, 4),
    word("eth_net_offloads", 0x40, 3, doc="there is a group ETHERNET"),
    word("roce", 0x40, 2, doc="there is a group ROCE"),
    word("atomic", 0x40, 1, doc="there is a group ATOMIC"),
    word("cq_oi", 0x44, 31, doc="completion queues may ignore overruns"),
    word("cq_resize", 0x44, 30),
    word("cq_moderation", 0x44, 29),
    word("cq_period_mode_modify", 0x44, 28),
    word("pg", 0x44, 24, doc="there is a group ODP"),
    word("block_lb_mc", 0x44, 23),
    word("scqe_break_moderation", 0x44, 21),
    word("cd", 0x44, 19),
    word("apm", 0x44, 17),
    word("imaicl", 0x44, 14, doc="memory windows"),
    word("set_deth_sqpn", 0x44, 7),
    word("qkv", 0x44, 9),
    word("pkv", 0x44, 8),
    word("xrc", 0x44, 3),
    word("ud", 0x44, 2),
    word("uc", 0x44, 1),
    word("rc", 0x44, 0),
    word("uar_4k", 0x48, 31),
    word("uar_size", 0x48, 21, 16, "log of the MiB of doorbell pages"),
    word("umem_uid_0", 0x48, 13, doc="privileged software may make memory of users, too"),
    word("log_pg_sz", 0x48, 7, 0),
    word("bf", 0x4C, 31, doc="BlueFlame"),
    word("driver_version", 0x4C, 30, doc="there is SET_DRIVER_VERSION"),
    word("log_bf_reg_size", 0x4C, 20, 16),
    word("max_wqe_sz_sq", 0x50, 15, 0),
    word("max_wqe_sz_rq", 0x54, 15, 0),
    word("max_qp_mcg", 0x5C, 24, 0),
    word("log_max_mcg", 0x60, 7, 0),
    word("log_max_transport_domain", 0x64, 28, 24),
    word("log_max_pd", 0x64, 20, 16),
    word("log_max_xrcd", 0x64, 4, 0),
    word("log_max_flow_counter_bulk", 0x68, 23, 16),
    word("log_max_rq", 0x6C, 28, 24),
    word("log_max_sq", 0x6C, 20, 16),
    word("log_max_tir", 0x6C, 12, 8),
    word("log_max_tis", 0x6C, 4, 0),
    word("basic_cyclic_rcv_wqe", 0x70, 31),
    word("log_max_rmp", 0x70, 28, 24),
    word("log_max_rqt", 0x70, 20, 16),
    word("log_max_rqt_size", 0x70, 12, 8),
    word("log_max_tis_per_sq", 0x70, 4, 0),
    word("roce_rw_supported", 0x74, 30, doc="software may set `roce`"),
    word("log_max_wq_sz", 0x78, 4, 0),
    word("nic_vport_change_event", 0x7C, 31),
    word("disable_local_lb_uc", 0x7C, 30),
    word("disable_local_lb_mc", 0x7C, 29),
    word("log_max_vlan_list", 0x7C, 20, 16),
    word("log_max_current_mc_list", 0x7C, 12, 8),
    word("log_max_current_uc_list", 0x7C, 4, 0),
    u64("general_obj_types", 0x80),
    word("sq_ts_format", 0x88, 31, 30),
    word("rq_ts_format", 0x88, 29, 28),
    word("log_max_uctx", 0x8C, 28, 24),
    word("log_max_umem", 0x8C, 20, 16),
    word("max_num_eqs", 0x8C, 15, 0, "0 = 1 << log_max_eq"),
    word("log_uar_page_sz", 0x90, 15, 0, "of the driver, in units of 4 KiB"),
    u32("device_frequency_mhz", 0x98),
    u32("device_frequency_khz", 0x9C),
    u32("num_of_uars_per_page", 0xA4),
    word("native_port_num", 0xC0, 23, 16),
    word("num_vhca_ports", 0xC0, 15, 8),
    u32("uctx_cap", 0xD4, "UserRight: rights that a user context can have"),
    doc="What the adapter as a whole can; other groups exist if a bit of this one says so.",
    source="mlx5_ifc.h: cmd_hca_cap",
)

ETHERNET = Struct(
    "CAP_ETHERNET",
    GROUP_BYTES,
    word("csum_cap", 0x00, 31),
    word("vlan_cap", 0x00, 30),
    word("lro_cap", 0x00, 29),
    word("wqe_vlan_insert", 0x00, 24),
    word("self_lb_en_modifiable", 0x00, 23),
    word("max_lso_cap", 0x00, 20, 16, "log of the most bytes that are cut into segments"),
    word("wqe_inline_mode", 0x00, 13, 12, "0 = L2 header, 1 = as the vport says, 2 = nothing"),
    word("rss_ind_tbl_cap", 0x00, 11, 8, "log of the entries of a table"),
    word("scatter_fcs", 0x00, 6),
    word("cqe_checksum_full", 0x04, 28),
    doc="Offloads of Ethernet.",
    source="mlx5_ifc.h: per_protocol_networking_offload_caps",
)

ATOMIC = Struct(
    "CAP_ATOMIC",
    GROUP_BYTES,
    word("request_endianness_mode", 0x08, 31, 30, "1 = results in the order of the host"),
    word("endianness_mode_1_supported", 0x08, 25),
    word("operations", 0x10, 15, 0, "1 = compare and swap, 2 = fetch and add; 4 and 8 with masks"),
    word("sizes_qp", 0x14, 15, 0, "bit n: operands of 2^n bytes"),
    word("sizes_dc", 0x18, 15, 0),
    doc="Atomic operations.",
    source="mlx5_ifc.h: atomic_caps, MLX5_ATOMIC_OPS_*",
)

ROCE = Struct(
    "CAP_ROCE",
    GROUP_BYTES,
    word("sw_r_roce_src_udp_port", 0x00, 27),
    word("qp_ts_format", 0x00, 1, 0),
    word("l3_type", 0x10, 19, 16, "2 = IPv4, 4 = IPv6"),
    word("roce_version", 0x10, 7, 0, "1 = RoCE v1, 4 = RoCE v2"),
    word("r_roce_dest_udp_port", 0x14, 15, 0),
    word("r_roce_max_src_udp_port", 0x18, 31, 16),
    word("r_roce_min_src_udp_port", 0x18, 15, 0),
    word("roce_address_table_size", 0x1C, 15, 0),
    doc="RDMA over Converged Ethernet.",
    source="mlx5_ifc.h: roce_cap",
)

NIC_RECEIVE: Final = 0x40
"""Offset of `FLOW_PROPERTIES` for what is received, in the group FLOW_TABLE."""
MATCHED_FIELDS: Final = 0xFE0F3E00
"""`field_support`: addresses, Ethertype, VLAN, protocol, ports and flags of the outer headers."""

FLOW_PROPERTIES = Struct(
    "CAP_FLOW_PROPERTIES",
    0x40,
    word("ft_support", 0x00, 31),
    word("flow_counter", 0x00, 29),
    word("flow_modify_en", 0x00, 28),
    word("modify_root", 0x00, 27),
    word("identified_miss_table_mode", 0x00, 26),
    word("flow_table_modify", 0x00, 25),
    word("log_max_ft_size", 0x04, 29, 24),
    word("max_ft_level", 0x04, 7, 0),
    word("log_max_ft_num", 0x0C, 7, 0),
    word("log_max_destination", 0x10, 7, 0),
    word("log_max_flow_counter", 0x10, 15, 8),
    word("log_max_flow", 0x14, 7, 0),
    u32("field_support", 0x20, "fields of the outer headers that groups may match"),
    doc="Flow tables of one kind.",
    source="mlx5_ifc.h: flow_table_prop_layout",
)

QUERY_CAP_OFFSET: Final = 0x10
"""Offset of a group in the output of QUERY_HCA_CAP and in the input of SET_HCA_CAP."""
BY_GROUP: Final = {
    CapGroup.GENERAL: GENERAL, CapGroup.ETHERNET: ETHERNET, CapGroup.ATOMIC: ATOMIC,
    CapGroup.ROCE: ROCE, CapGroup.ODP: ODP,
}  # fmt: skip


def group_name(number: int) -> str:
    """Return the name of a group of capabilities, or its number in hex."""
    try:
        return CapGroup(number).name
    except ValueError:
        return f"{number:#x}"
