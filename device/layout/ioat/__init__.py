"""Registers and descriptors of Intel's I/OAT DMA engine."""
