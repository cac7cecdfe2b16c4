"""Measurements behind the figures in RESULTS.md; not part of the installed package."""
