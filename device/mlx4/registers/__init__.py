"""Registers of BAR2: doorbells and BlueFlame."""
