"""Attention over token trees: the mask, its blocks, and the kernels that compute them."""
