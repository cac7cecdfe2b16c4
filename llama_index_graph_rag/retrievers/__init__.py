"""The three retrievers."""
