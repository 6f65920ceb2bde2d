"""Write to standard streams: tables, lines, and what a run is doing."""
