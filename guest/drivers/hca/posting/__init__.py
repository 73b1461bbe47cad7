"""Work requests as entries in the form of the hardware."""
