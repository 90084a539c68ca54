"""`rerank` where people already are: a few lines for each framework, which is imported with its module only."""
