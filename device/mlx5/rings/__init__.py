"""Queues in guest memory and their entries."""
