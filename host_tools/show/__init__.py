"""`bluebridge show`: what the functions of a guest hold now.

The device server tells contexts and registers as bytes; they are decoded here, with the tables that
the device itself works with.
"""
