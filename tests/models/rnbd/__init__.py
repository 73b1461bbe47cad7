"""What tests of RNBD share; runs in guests, too."""
