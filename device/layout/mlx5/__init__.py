"""Registers, commands, contexts and capabilities of ConnectX-5 (mlx5), all big-endian."""
