"""Devices to learn from."""
