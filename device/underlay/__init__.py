"""The tunnel of a wire between hosts: the frames of a network in VXLAN over UDP."""
