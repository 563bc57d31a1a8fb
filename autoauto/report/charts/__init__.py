"""Records -> charts as SVG."""
