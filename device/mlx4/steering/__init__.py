"""Device-managed flow steering: rules that drivers attach, and which queue pairs they name."""
