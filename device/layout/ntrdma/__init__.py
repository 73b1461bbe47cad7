"""NTRDMA version 0.1 on the wire: blocks, commands and ring entries, all little-endian."""
