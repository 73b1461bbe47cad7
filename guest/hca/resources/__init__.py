"""What the adapter lends and is lent: commands, ICM, numbers, vectors, memory regions."""
