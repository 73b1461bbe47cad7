"""Reliable connections packet by packet: engines that take events and return packets."""
