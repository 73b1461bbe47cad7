"""How a driver reaches its device: registers, interrupts, DMA memory."""
