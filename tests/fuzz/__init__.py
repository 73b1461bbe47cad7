"""Coverage-guided fuzzers of the device: `make fuzz SECONDS=600`."""
