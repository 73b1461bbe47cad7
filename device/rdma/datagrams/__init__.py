"""The engines of datagrams: UD and the general and subnet management queue pairs."""
