"""An engine on several processes that send arrays to each other."""
