"""Workers, which run the searches of the queue."""
