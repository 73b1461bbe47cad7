"""Who receives what: rules as drivers write them, and the decisions of the three ways to steer."""
