"""Back ends of the engine: a bridge with or without a DMA engine, and TCP."""
