"""`bluebridge show`: the present contents of a guest's functions.

The device server tells contexts and registers as bytes; they are decoded here, with the tables that
the device itself works with.
"""
