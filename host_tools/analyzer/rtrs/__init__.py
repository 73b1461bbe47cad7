"""Decodes messages of RTRS and RNBD, and finds their connections."""
