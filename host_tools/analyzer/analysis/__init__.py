"""Assembles the events of a bus log into bus transactions and work requests."""

from bluebridge.host_tools.analyzer.analysis.assembly import TransferAssembler, transfers
from bluebridge.host_tools.analyzer.analysis.transfer import PostedBy, TimeModel, Transfer
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction

__all__ = [
    "PostedBy",
    "Role",
    "TimeModel",
    "Tlp",
    "Transaction",
    "Transfer",
    "TransferAssembler",
    "transfers",
]
