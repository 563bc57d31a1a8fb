"""What both HTTP servers use, on aiohttp: bodies, connections and answers within limits."""
