"""The engines of Ethernet frames, independent of any card."""
