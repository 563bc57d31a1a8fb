"""The parts that both HTTP servers share, on aiohttp: the application of a process; bodies, connections, answers."""
