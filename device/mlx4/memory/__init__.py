"""ICM, the pages of a driver, and entries of the memory protection table."""
