"""A side of NTRDMA that lives on while its peers come, die in any state of their port, and come.

python3 -m bluebridge.guest.ntrdma.survival stay                       # until SIGTERM
python3 -m bluebridge.guest.ntrdma.survival visit                      # writes, reads, checks
python3 -m bluebridge.guest.ntrdma.survival visit --at 3 --then stop   # to be killed there
python3 -m bluebridge.guest.ntrdma.survival visit --at 3 --then close  # parts there in order
    python3 -m bluebridge.guest.ntrdma.survival lives --ends 3:stop 4:close 5:hold
"""
