"""Measuring retrieval: data sets, metrics and reports."""
