"""`bluebridge fingerprint`: what software can see of a card, as text that can be compared."""
