"""Firmware commands: their queue, and a rule for each opcode."""
