"""Rules of device-managed flow steering as drivers write them."""
