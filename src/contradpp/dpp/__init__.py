"""A DPP that can be asked: probabilities, conditioning, sampling, completion, files."""
