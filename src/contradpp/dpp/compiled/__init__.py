"""The algebra of determinants: plain definitions and the fast kernels tested against them."""
