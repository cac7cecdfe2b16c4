"""Where a graph is kept."""
