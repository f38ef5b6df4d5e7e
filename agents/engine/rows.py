"""The sampling state of every cache row, as arrays, so that a step costs no Python per session.

Shapes: R rows, N of them that take part in a step, M tokens a completion may have.
"""

import numpy as np

from agents.engine.base import uniforms


class SlotRows:
    """State of the ``slots`` rows. ``length_R`` is how many positions of a row are cached."""

    def __init__(self, slots: int) -> None:
        self.active_R = np.zeros(slots, dtype=bool)
        """The row's session is decoding: its next step encodes ``token_R`` at position ``length_R``."""
        self.length_R = np.zeros(slots, dtype=np.int64)
        self.token_R = np.zeros(slots, dtype=np.int64)
        """The last sampled token."""
        self._made_R = np.zeros(slots, dtype=np.int64)
        self._limit_R = np.zeros(slots, dtype=np.int64)
        self._uniform_RM = np.zeros((slots, 64))
        self._out_3RM = np.zeros((3, slots, 64))
        """Token, log-probability, entropy; float64 holds all three exactly."""

    def begin(self, row: int, seed: int, limit: int, skip: int = 0) -> None:
        """At most ``limit`` tokens are going to be sampled in ``row``, ``skip`` were before."""
        width = self._uniform_RM.shape[1]
        if limit > width:
            more = ((0, 0), (0, max(limit, 2 * width) - width))
            self._uniform_RM = np.pad(self._uniform_RM, more)
            self._out_3RM = np.pad(self._out_3RM, ((0, 0), *more))
        self._uniform_RM[row, :limit] = uniforms(seed, limit, skip)
        self._limit_R[row], self._made_R[row] = limit, 0

    def uniform(self, row_N: np.ndarray) -> np.ndarray:
        """The uniform number of each row's next token."""
        return self._uniform_RM[row_N, self._made_R[row_N]]

    def record(self, row_N: np.ndarray, out_3N: np.ndarray) -> np.ndarray:
        """Takes a sampled token for each row; says which rows have now reached their limit."""
        self._out_3RM[:, row_N, self._made_R[row_N]] = out_3N
        self.token_R[row_N] = out_3N[0]
        self._made_R[row_N] += 1
        return self._made_R[row_N] == self._limit_R[row_N]

    def result(self, row: int) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
        """Tokens, log-probabilities and entropies of the row's completion; the row stops decoding."""
        self.active_R[row] = False
        token, logp, entropy = self._out_3RM[:, row, : self._made_R[row]].tolist()
        return tuple(map(int, token)), tuple(logp), tuple(entropy)
