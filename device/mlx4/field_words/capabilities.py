"""Words on mailboxes about the whole device: its capabilities, and the requests of INIT_HCA."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.capabilities import (
    INIT_HCA,
    QUERY_ADAPTER,
    QUERY_DEV_CAP,
    QUERY_FW,
    QUERY_PORT,
)
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.mlx4.field_words.word import TableWords, checked, ignored, told

_FIRMWARE = "commands/firmware_commands.py"
_CAPABILITIES = "settings/capabilities.py"
_ZERO = "told as 0"
_TOLD_BACK = "told by QUERY_HCA as it was written"

CAPABILITIES = (
    TableWords(
        QUERY_FW,
        (
            (
                told(f"{_FIRMWARE}: query_fw"),
                "fw_pages fw_major fw_subminor fw_minor cmd_interface_rev log_max_commands "
                "clr_int_offset catas_offset catas_dwords clock_offset",
            ),
            (ignored(f"{_ZERO}: BAR0, function 0"), "clr_int_bar catas_bar clock_bar function"),
            (ignored(f"{_ZERO}: there are no virtual functions"), "comm_offset comm_bar"),
        ),
    ),
    TableWords(
        QUERY_DEV_CAP,
        (
            (told(f"{_CAPABILITIES}: _ENTRY_BYTES"), "*_entry"),
            (
                told(f"{_CAPABILITIES}: device_capabilities"),
                "num_ports blueflame log_bf_reg_size log_bf_regs_per_page flags_hi flags_lo "
                "bmme_flags",
            ),
            (
                told(f"{_CAPABILITIES}: _LIMITS"),
                "log_max_srq_wqes log_max_qp_wqes log_reserved_qps log_max_qps log_reserved_srqs "
                "log_max_srqs log_max_cqes log_reserved_cqs log_max_cqs log_max_mpts "
                "log_reserved_eqs log_max_eqs log_reserved_mtts log_reserved_mrws "
                "log_max_requester_depth log_max_responder_depth rss ack_delay vl_port_width "
                "log_max_msg log_max_gids log_max_pkeys rate_support timestamps uar_size_code "
                "log_page_size max_sq_sge max_sq_desc max_rq_sge max_rq_desc log_max_qp_per_mcg "
                "log_max_mcgs flow_stats eth_prot_ctrl reserved_pds log_max_pds reserved_xrcds "
                "log_max_xrcds max_counters reserved_lkey max_icm_size map_clock log_max_gso "
                "steers_datagrams flow_steering steering_sniffers max_qp_per_rule high_rate_qpn "
                "high_rate_count",
            ),
            (ignored(f"{_ZERO}: events have queues of software's only"), "num_sys_eqs"),
            (ignored(f"{_ZERO}: Linux keeps 128 pages to itself anyway"), "reserved_uars"),
            (ignored(f"{_ZERO}: all records are software's"), "reserved_mgms"),
        ),
    ),
    TableWords(
        QUERY_PORT,
        (
            (
                told("ports/properties.py: ethernet"),
                "link_up autoneg suggested_type supported_types ib_mtu eth_mtu link_speed "
                "max_width log_max_gids log_max_pkeys log_max_vlans log_max_macs max_tc max_vl mac",
            ),
            (told("commands/port_commands.py: query_port"), "high_rate_steering"),
            (ignored(f"{_ZERO}: a port has one kind of link"), "default_sense"),
        ),
    ),
    TableWords(
        QUERY_ADAPTER,
        (
            (told(f"{_FIRMWARE}: query_adapter"), "vsd"),
            (ignored(f"{_ZERO}: there is no INTx"), "inta_pin"),
        ),
    ),
    TableWords(
        INIT_HCA,
        (
            (checked(f"{_FIRMWARE}: init_hca", Status.BAD_PARAM, "2"), "version"),
            (
                checked(f"{_FIRMWARE}: init_hca", Status.BAD_PARAM, "all but big-endian hosts"),
                "flags",
            ),
            (
                checked(
                    f"{_FIRMWARE}: init_hca",
                    Status.BAD_PARAM,
                    "64-byte completion entries where they are announced, no 64-byte event entries",
                ),
                "eqe_cqe_size",
            ),
            (
                checked(f"{_FIRMWARE}: init_hca", Status.BAD_PARAM, "0: pages of 4 KiB"),
                "uar_page_size",
            ),
            (checked(f"{_FIRMWARE}: init_hca", Status.BAD_PARAM, "0"), "mc_hash_fn"),
            (
                told(f"{_FIRMWARE}: query_hca", "by QUERY_HCA"),
                "global_caps core_clock cacheline",
            ),
            (
                ignored(f"such contexts live in the device, none in ICM; {_TOLD_BACK}"),
                "qpc_base srqc_base cqc_base altc_base auxc_base eqc_base rdmarc_base mc_base "
                "cmpt_base rule_base",
            ),
            (
                ignored(f"rules are looked up for all protocols; {_TOLD_BACK}"),
                "eth_rule_bits eth_rule_addresses ib_rule_bits ib_rule_addresses",
            ),
            (ignored(f"all pages of BAR2 work; {_TOLD_BACK}"), "log_uars"),
            (ignored(f"windows always work; {_TOLD_BACK}"), "mw_enabled"),
        ),
    ),
)
