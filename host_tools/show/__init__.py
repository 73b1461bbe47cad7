"""`bluebridge show`: what functions hold, told by the device server as bytes and decoded here."""
