"""Words on mailboxes about ports: settings, statistics, groups, cables."""

from __future__ import annotations

from bluebridge.device.layout.mlx4 import cable, ports
from bluebridge.device.layout.mlx4.capabilities import SET_PORT_GENERAL, SET_PORT_RQP_CALC
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.diagnostics import DIAGNOSTICS
from bluebridge.device.mlx4.field_words.word import TableWords, checked, ignored, told

_CONFIG = "commands/config_dev_commands.py: config_dev"
_REGISTER = "commands/access_register_commands.py"
_FUNCTIONS = "of virtual functions, which there are not"

PORTS = (
    TableWords(
        DIAGNOSTICS,
        ((told("commands/firmware_commands.py: diag_rprt", by_position=True), "*"),),
    ),
    TableWords(
        SET_PORT_GENERAL,
        (
            (ignored("each address of the table says which version it is for"), "roce_mode"),
            (ignored("there is one traffic class: a pause stops all of them"), "pfctx pfcrx"),
            (ignored(_FUNCTIONS), "flags2 user_mtu user_mac"),
        ),
    ),
    TableWords(
        SET_PORT_RQP_CALC,
        (
            (
                ignored("all addresses of the port have one queue pair, `base_qpn`"),
                "log_macs log_vlans n_prio mac_miss no_vlan vlan_miss",
            ),
            (ignored("frames to groups go to `mcast_qpn` in all modes"), "mcast_mode"),
        ),
    ),
    TableWords(
        ports.ETH_STATS,
        (
            (
                told("ports/statistics.py: ethernet_statistics", by_position=True),
                "rx_broadcast_* rx_multicast_* rx_unicast_* rx_octets_* rx_frames_* "
                "tx_broadcast_* tx_multicast_* tx_unicast_* tx_octets_* tx_frames_* tx_dropped",
            ),
            (
                told("ports/statistics.py: ethernet_statistics"),
                "rx_dropped rx_no_buffer rx_total_frames",
            ),
        ),
    ),
    TableWords(
        ports.FLOW_STATS,
        ((told("ports/statistics.py: flow_statistics"), "rx_* tx_*"),),
    ),
    TableWords(
        ports.ROCE_ADDRESS,
        ((ignored("the address itself shows whether it is one of IPv4"), "type"),),
    ),
    TableWords(
        ports.CONFIG_DEV,
        (
            (checked(_CONFIG, Status.BAD_PARAM, "the UDP port"), "update_flags"),
            (checked(_CONFIG, Status.BAD_PARAM, "4791"), "roce_port"),
            (told(_CONFIG), "rx_checksum"),
            (
                ignored("source ports come from the numbers of both queue pairs"),
                "roce_entropy",
            ),
        ),
    ),
    TableWords(
        ports.IF_COUNTER,
        (
            (
                told("ports/statistics.py: interface_statistics"),
                "interfaces rx_frames rx_bytes tx_frames tx_bytes",
            ),
            (ignored("told as 0: there is no other mode"), "mode"),
        ),
    ),
    TableWords(
        ports.SET_PORT_IB,
        ((ignored("the table always has 128 places"), "pkey_table_size"),),
    ),
    TableWords(
        ports.ACCESS_REG,
        (
            (
                checked(f"{_REGISTER}: access_register", Status.BAD_PARAM, "PTYS"),
                "register",
            ),
            (
                checked(f"{_REGISTER}: access_register", Status.BAD_PARAM, "1 query, 2 write"),
                "method",
            ),
            (ignored("a constant of the format, given back"), "constant"),
            (ignored("given back: a refusal is the command's own status"), "status"),
            (ignored("a register has one length"), "length"),
        ),
    ),
    TableWords(
        ports.PTYS,
        (
            (
                checked(f"{_REGISTER}: access_register", Status.BAD_PARAM, "Ethernet"),
                "protocol",
            ),
            (
                told(f"{_REGISTER}: _ptys"),
                "eth_capability eth_operational eth_partner",
            ),
            (ignored("told as 0: autonegotiation is always on"), "flags"),
        ),
    ),
    TableWords(
        cable.QSFP_EEPROM,
        (
            (
                told("ports/cable.py: _memory"),
                "identifier revision flat no_interrupt upper_identifier connector ethernet "
                "encoding bit_rate copper_length technology vendor part_number part_revision "
                "attenuation_2500 attenuation_5000 base_sum serial_number date extended_sum",
            ),
            (ignored("told as 0: up to 1.5 W"), "power_class"),
            (ignored("told as 0: the vendor is none"), "vendor_oui"),
        ),
    ),
)
