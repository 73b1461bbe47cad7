"""Packets on a wire: a message cut to the path MTU, its headers, its checks."""
