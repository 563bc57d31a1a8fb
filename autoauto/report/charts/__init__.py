"""Records -> charts as values, drawn as SVG and as Plotly figures."""
