"""Commands, ICM, numbers, vectors and memory regions: the parts that the driver's objects use."""
