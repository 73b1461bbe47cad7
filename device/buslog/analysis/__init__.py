"""The analyzer: folds the events of a bus log into transactions and work requests."""

from bluebridge.device.buslog.analysis.fold import Folder, transfers
from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction
from bluebridge.device.buslog.analysis.transfer import Path, TimeModel, Transfer

__all__ = ["Folder", "Path", "Role", "TimeModel", "Tlp", "Transaction", "Transfer", "transfers"]
