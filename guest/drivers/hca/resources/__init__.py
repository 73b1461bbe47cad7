"""What objects of the driver are made with: commands, ICM, numbers, vectors, memory regions."""
