"""Non-transparent bridges: the link between two, their windows, and the models there are."""
