"""Assembles the events of a bus log into bus transactions and work requests."""

from bluebridge.host_tools.analyzer.analysis.assembly import TransferAssembler, transfers
from bluebridge.host_tools.analyzer.transaction import PostedBy, Role, Tlp, Transaction, Transfer

__all__ = ["PostedBy", "Role", "Tlp", "Transaction", "Transfer", "TransferAssembler", "transfers"]
