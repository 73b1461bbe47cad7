"""`bluebridge atlas`: faults by name under stock programs, and what these make of them."""
