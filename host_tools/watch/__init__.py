"""`bluebridge watch`: what crosses the buses now, in the terminal."""
