"""Exports a log's messages and accesses as packets of wires and of PCIe to a pcapng file."""
