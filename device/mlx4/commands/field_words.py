"""Fields of tables that the adapter refuses, and fields that it ignores, with the reason.

`python -m bluebridge.device.mlx4.commands.field_words` writes the page of them, which `make docs`
has. A field that is not here is used: the device behaves as it says, or writes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.mlx4.commands.register import RULES

_INIT_HCA = "commands/firmware_commands.py: init_hca"
_PORT = "commands/port_commands.py"

_ZERO = "told as 0"
_TOLD_BACK = "told as it was written"
_PRIORITY = "priorities and rates do not differ"
_OWN_PORT = "the fabric brings what is for the own port"
_STATUS = "software's word on who owns the queue; the command says so"

REFUSED: dict[Opcode, str] = {
    Opcode.READ_MTT: "software writes the table itself, or with WRITE_MTT, and needs no copy",
    Opcode.SUSPEND_QP: "SQD stops a queue pair; no driver uses the suspended state",
    Opcode.UNSUSPEND_QP: "as SUSPEND_QP",
    Opcode.QUERY_FUNC: "of virtual functions, which there are not",
    Opcode.VIRT_PORT_MAP: "ports are what they are: there is no bonding in the adapter",
    Opcode.UPDATE_QP: "its capability is not announced; Linux does without",
}
"""The reason why a command is not carried out, by opcode: each ends with BAD_OP."""

_INTRODUCTION = """# What the adapter does with each field of its interface

Generated with `python -m bluebridge.device.mlx4.commands.field_words`;
`tests/unit/mlx4/test_field_words.py` fails where a function that is named does not have the
field. [registers.md](registers.md) says where each field is and what it means.

Fields of `device/layout/mlx4` that are not here are used: the device behaves as they say, or
writes them, and the same test fails where no function has their names. Of those that are here

| word | meaning |
|---|---|
| checked | anything but what is noted ends the command with BAD_PARAM |
| ignored | nothing depends on it, and why |

Functions stand in `device/mlx4`. Bits that no table has are ignored.
"""


@dataclass(frozen=True, slots=True)
class Checked:
    """A command ends with BAD_PARAM unless a field is as `wanted`.

    `where` is the function below device/mlx4, such as `steering/rules.py: rule_of`, that looks.
    """

    where: str
    wanted: str


Words = Mapping[str, str | Checked]
"""By names of fields, separated by spaces: why they are ignored, or how they are checked."""

_HEAD = {"size id": Checked("steering/rules.py: _match", "the headers there are")}

WORDS: Mapping[str, Words] = {
    "HCR": {"control.toggle": "software tells old from new commands by it; given back as written"},
    "FLASH.COMMAND": {"hold": "a command without opcode goes on where the last one ended"},
    "CTL": {
        "ownership": "reads as 0: nobody else owns the adapter; there are no other functions",
        "clr_int": "there is no INTx: events come by MSI-X, or are polled for",
    },
    "QUERY_FW": {"catas_bar": f"{_ZERO}: BAR0"},
    "QUERY_DEV_CAP": {
        "num_sys_eqs": f"{_ZERO}: events have queues of software's only",
        "reserved_uars": f"{_ZERO}: Linux keeps 128 pages to itself anyway",
        "reserved_mgms": f"{_ZERO}: all records are software's",
    },
    "QUERY_PORT": {"default_sense": f"{_ZERO}: a port has one kind of link"},
    "QUERY_ADAPTER": {"inta_pin": f"{_ZERO}: there is no INTx"},
    "INIT_HCA": {
        "version": Checked(_INIT_HCA, "2"),
        "flags": Checked(_INIT_HCA, "all but big-endian hosts"),
        "eqe_cqe_size": Checked(
            _INIT_HCA,
            "64-byte completion entries where they are announced, no 64-byte event entries",
        ),
        "uar_page_size": Checked(_INIT_HCA, "0: pages of 4 KiB"),
        "mc_hash_fn": Checked(_INIT_HCA, "0"),
        "qpc_base srqc_base cqc_base altc_base auxc_base eqc_base rdmarc_base mc_base "
        "cmpt_base": f"such contexts live in the device, none in ICM; {_TOLD_BACK}",
        "log_uars": f"all pages of BAR2 work; {_TOLD_BACK}",
    },
    "MPT": {
        "first_byte_offset mtt_rep": Checked("memory/protection_table.py: region_of_entry", "0"),
        "mio": "how the adapter orders its own reads",
        "atomic_enable": "the rights say whether peers may do atomics",
        "lkey": "of windows: a bind request names the region",
    },
    "EQC": {
        "status": _STATUS,
        "period max_count": "every event has an entry; an armed queue interrupts at once",
    },
    "CQC": {
        "collapsed": Checked("rings/completion_queues.py: CompletionQueues.create", "0"),
        "status": _STATUS,
    },
    "SRQC": {"state": _STATUS},
    "QPC": {
        "pri_link_type": "the port decides; Linux names another one in RTR2RTS",
        "pm_state alt_path": f"path migration is not offered; {_TOLD_BACK}",
        "ack_freq": "each message is answered",
        "sq_no_prefetch": "how the adapter fetches entries is its own affair",
        "invalid_credits": "acknowledgements tell no credits at all",
        "pri_feup": "priorities do not differ",
    },
    "CTRL": {"strong_order": "entries are always carried out in order"},
    "AV": {
        "port": "a datagram leaves by the queue pair's own port",
        "static_rate": _PRIORITY,
        "force_loopback": _OWN_PORT,
    },
    "CQE": {"svlan_present": f"{_ZERO}: datagrams have customer tags only"},
    "CQE.FRAME": {"ipv6_extensions": f"{_ZERO}: software looks for extension headers itself"},
    "EQE.COMP": {"subtype": f"{_ZERO}: there are no others"},
    "RULE_CONTROL": {"mode": Checked("steering/rules.py: rule_of", "RuleMode")},
    "RULE_ETHERNET": _HEAD,
    "RULE_INFINIBAND": _HEAD,
    "RULE_IPV4": _HEAD,
    "RULE_PORTS": _HEAD,
    "RULE_VXLAN": _HEAD,
    "UD_RANGE": {
        "first last": Checked(
            "commands/steering_commands.py: set_datagram_range", "a range of the table's"
        )
    },
    "SET_PORT_GENERAL": {"roce_mode": "each address of the table says which version it is for"},
    "SET_PORT_RQP_CALC": {
        "log_macs log_vlans": "all addresses of the port have one queue pair, `base_qpn`",
        "mcast_mode": "frames to groups go to `mcast_qpn` in all modes",
    },
    "ROCE_ADDRESS": {"type": "the address itself shows whether it is one of IPv4"},
    "CONFIG_DEV": {
        "update_flags": Checked(f"{_PORT}: config_dev", "the UDP port"),
        "roce_port": Checked(f"{_PORT}: config_dev", "4791"),
    },
    "IF_COUNTER": {"mode": f"{_ZERO}: there is no other mode"},
    "ACCESS_REG": {
        "register": Checked(f"{_PORT}: access_register", "PTYS"),
        "method": Checked(f"{_PORT}: access_register", "1 query, 2 write"),
        "constant": "a constant of the format, given back",
        "status": "given back: a refusal is the command's own status",
        "length": "a register has one length",
    },
    "PTYS": {
        "protocol": Checked(f"{_PORT}: access_register", "Ethernet"),
        "flags": f"{_ZERO}: autonegotiation is always on",
    },
}
"""By names of tables in device/layout/mlx4."""


def _commands() -> Iterator[str]:
    yield "## Commands"
    yield ""
    yield "Any other opcode ends with BAD_OP, and nothing is read or written."
    yield ""
    yield "| opcode | command | without INIT_HCA | what it does, or why not |"
    yield "|---|---|---|---|"
    for opcode in Opcode:
        rule = RULES.get(opcode)
        if rule is None:
            yield f"| {opcode:#05x} | {opcode.name} | | BAD_OP: {REFUSED.get(opcode, '')} |"
            continue
        says = (inspect.getdoc(rule.handler) or "").partition("\n\n")[0].replace("\n", " ")
        before = "yes" if rule.before_init else "OK" if rule.closing else "BAD_SYS_STATE"
        yield f"| {opcode:#05x} | {opcode.name} | {before} | {says} |"
    yield ""


def page() -> str:
    """Return the page as Markdown."""
    lines = [_INTRODUCTION, *_commands(), "## Fields", ""]
    for table, words in WORDS.items():
        lines += [f"### {table}", "", "| fields | word | where, or why |", "|---|---|---|"]
        for names, word in words.items():
            if isinstance(word, Checked):
                says = f"checked | `{word.where}`: {word.wanted}"
            else:
                says = f"ignored | {word}"
            lines.append(f"| {', '.join(names.split())} | {says} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
