"""NTRDMA as a provider of verbs."""
