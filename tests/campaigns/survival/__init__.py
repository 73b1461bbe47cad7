"""NTRDMA in one guest, while its peer ends in every state of its port, again and again."""
