"""The report: the quality of a trained model, its item map, and an HTML page."""
