"""Firmware commands: the host command register, and one module of handlers per subject."""
