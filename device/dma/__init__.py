"""DMA engines."""
