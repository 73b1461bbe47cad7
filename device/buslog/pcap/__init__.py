"""A log's messages as the packets a real wire would have carried, in a pcapng file."""
