"""One configuration through all rooms: profile -> estimate -> plan -> schedule -> measure."""
