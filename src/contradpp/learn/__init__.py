"""Learning a kernel: objectives, negative sets, optimizers, and the loop that joins them."""
