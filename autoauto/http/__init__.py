"""What both HTTP servers use, on aiohttp: an application that a process serves; bodies, connections, answers."""
