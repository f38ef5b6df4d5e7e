"""The token tree: what an agent did, and at the same time the training sample."""

from agents.tree.tree import Batch, Forward, Kind, Node, Tensor

__all__ = ["Batch", "Forward", "Kind", "Node", "Tensor"]
