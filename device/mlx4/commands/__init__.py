"""Firmware commands: the host command register and a module of handlers for each subject."""
