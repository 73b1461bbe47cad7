"""The bus between a driver and its device: registers, interrupts, DMA memory."""
