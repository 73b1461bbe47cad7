"""NTRDMA version 0.1 on the wire: blocks, commands, ring entries. Everything is little-endian."""
