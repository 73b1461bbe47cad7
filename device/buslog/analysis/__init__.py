"""Assembles the events of a bus log into bus transactions and work requests, and shows them."""

from bluebridge.device.buslog.analysis.assembly import TransferAssembler, transfers
from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction
from bluebridge.device.buslog.analysis.transfer import PostedBy, TimeModel, Transfer

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
