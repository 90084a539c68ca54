"""The benchmark: models on data sets, and the studies beside it."""
