"""Messages of RTRS and RNBD by name: which connections are theirs, and what each message says."""
