"""Plans of devices in any order, all-to-all or with stage replicas, whose costs depend on both ends of a stage."""
