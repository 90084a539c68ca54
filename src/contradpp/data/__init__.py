"""Baskets: where they come from and how they are stored."""
