"""Registers: initialization segment and doorbells of BAR0, and those of ACCESS_REG."""
