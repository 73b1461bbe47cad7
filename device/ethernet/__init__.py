"""The engines of Ethernet frames, which know no card."""
