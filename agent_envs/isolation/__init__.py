"""Environments and graders in processes that can be killed, and the faults that are reported of them."""
