"""Helpers of the tests of RNBD; they run in guests, too."""
