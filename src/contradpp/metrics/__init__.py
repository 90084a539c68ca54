"""Metrics of models on held-out baskets, reports, and comparisons."""
