"""Records -> tables, charts and pages; every number says where it comes from."""
