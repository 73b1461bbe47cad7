"""What an adapter is (configuration, capabilities), and what INIT_HCA set."""
