"""A side of NTRDMA that lives on while its peers come, die in any state of their port, and come.

Words behind `python3 -m bluebridge.guest.protocols.ntrdma.survival`:

    stay                             # until SIGTERM
    visit                            # writes, reads, checks
    visit --at 3 --then stop         # to be killed there
    visit --at 3 --then close        # parts there in order
    lives --ends 3:stop 4:close 5:hold
"""
