"""`bluebridge web`: the lab, or a finished log, as a page in a browser."""
