"""A log's messages and accesses as packets of wires and of PCIe, in a pcapng file."""
