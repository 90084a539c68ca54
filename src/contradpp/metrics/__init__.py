"""How good a model is: metrics, baselines to compare with, and a report."""
