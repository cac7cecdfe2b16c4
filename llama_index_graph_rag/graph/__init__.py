"""The graph: matrices, search and text; numpy and scipy only, no I/O."""
