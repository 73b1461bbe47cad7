"""The engines of connected queue pairs: RC, UC and XRC."""
