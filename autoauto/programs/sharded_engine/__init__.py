"""The `ShardedEngine` of [sharding-book] on real processes that send arrays to each other."""
