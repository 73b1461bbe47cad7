"""The packets of a message: cutting to the path MTU, headers, check sums."""
