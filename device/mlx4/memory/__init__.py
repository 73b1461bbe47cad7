"""Memory as the driver lends and describes it: ICM, firmware pages, memory protection table."""
