"""Registers besides the host command register: doorbells, BlueFlame, the error buffer."""
