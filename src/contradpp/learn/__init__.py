"""Learning a kernel: objectives, negative sets, optimisers, and the loop that joins them."""
