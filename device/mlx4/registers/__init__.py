"""Registers of the adapter, except the host command register."""
