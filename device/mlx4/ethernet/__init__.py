"""The engines of Ethernet frames."""
