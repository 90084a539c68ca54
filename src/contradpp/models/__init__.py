"""The public classes: thin, scikit-learn style."""
