"""Commands, ICM, numbers, vectors and memory regions, of which the driver makes its objects."""
