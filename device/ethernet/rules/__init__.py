"""Flow steering rules: which packets they match, and the tables that look packets up."""
