"""Records -> pages for the browser that need no network."""
