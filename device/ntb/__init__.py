"""Non-transparent bridges (NTB): the link between two of them, their windows, their models."""
