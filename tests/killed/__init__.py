"""Kills any process of a lab at a random moment under traffic, time and again.

    python -m tests.killed --times 200 --seed 1

`lab` is the lab with its traffic, `victims` what is killed and what must follow, `rounds` one round
after the other, `table` what is printed.
"""
