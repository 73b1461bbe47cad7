"""Device-managed flow steering rules as drivers write them."""
