"""Identity and capabilities of a ConnectX-5, and its refusals of commands."""
