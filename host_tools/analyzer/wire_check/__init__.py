"""Holds the packets of a capture against the rules of RoCE: checkers without I/O, and a command."""
