"""What a trace tells, as a tree, as a picture on a page and as a networkx graph."""
