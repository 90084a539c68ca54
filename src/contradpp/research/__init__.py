"""The paper's experiments: every table and figure, run again and set beside the published numbers."""
