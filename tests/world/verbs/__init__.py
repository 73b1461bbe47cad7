"""Two adapters in one process that are asked for anything, beside the oracle (`tests/oracle`)."""
