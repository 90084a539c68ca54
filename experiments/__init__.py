"""Studies that are run from a clone; the wheel does not hold them."""
