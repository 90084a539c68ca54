"""Slates of anyone's candidates: re-ranking for variety, with rules."""
