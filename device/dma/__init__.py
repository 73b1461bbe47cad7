"""The I/OAT DMA engine."""
