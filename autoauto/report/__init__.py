"""Records -> tables, charts and pages; every number is shown with its origin."""
