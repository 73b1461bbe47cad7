"""The analyzer: folds the events of a bus log into transactions and work requests."""

from device.buslog.analysis.fold import Folder, transfers
from device.buslog.analysis.transaction import Role, Tlp, Transaction
from device.buslog.analysis.transfer import Path, TimeModel, Transfer

__all__ = ["Folder", "Path", "Role", "TimeModel", "Tlp", "Transaction", "Transfer", "transfers"]
