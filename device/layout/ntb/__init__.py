"""Registers of non-transparent bridges, one module for each model."""
