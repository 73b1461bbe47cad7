"""The headers of Ethernet frames, and the changes that an adapter makes to frames."""
