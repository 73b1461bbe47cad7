"""Packets: messages cut to the path MTU, headers, check sums, and the reader of a wire."""
