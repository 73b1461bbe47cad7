"""The program that measures latencies and bandwidths over verbs."""
