"""The suite of NTRDMA over TCP, `make ntrdma-tcp`: no guest, no device server."""
