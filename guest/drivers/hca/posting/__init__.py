"""Translation of work requests into the hardware's queue entries."""
