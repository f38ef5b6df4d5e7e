"""The sampling state of every cache row, as arrays, so that a step costs no Python per session.

Shapes: R rows, N of them that take part in a step, M tokens a completion may have.
"""

import numpy as np

from agents.engine.base import Uniforms

FIRST = 32
"""Uniform numbers that are drawn at first; then it is as many again."""


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
        self._uniforms = Uniforms()
        self._draws: list[tuple[int, int]] = [(0, 0)] * slots
        """The seed of each row's request, and how many tokens were sampled of it before."""
        self._drawn_R = np.zeros(slots, dtype=np.int64)
        """How many uniform numbers are there; most requests end long before their limit."""
        self._uniform_RM = np.zeros((slots, 64))
        self._out_3RM = np.zeros((3, slots, 64))
        """Token, log-probability, entropy; float64 holds all three exactly."""

    def begin(self, row: int, seed: int, limit: int, skip: int = 0) -> None:
        """At most ``limit`` tokens are going to be sampled in ``row``, ``skip`` were before."""
        self._draws[row], self._limit_R[row] = (seed, skip), limit
        self._made_R[row] = self._drawn_R[row] = 0
        self._draw(row, min(limit, FIRST))

    def _draw(self, row: int, count: int) -> None:
        """``count`` uniform numbers more."""
        width, drawn = self._uniform_RM.shape[1], int(self._drawn_R[row])
        if drawn + count > width:
            more = ((0, 0), (0, max(drawn + count, 2 * width) - width))
            self._uniform_RM = np.pad(self._uniform_RM, more)
            self._out_3RM = np.pad(self._out_3RM, ((0, 0), *more))
        seed, skip = self._draws[row]
        self._uniform_RM[row, drawn : drawn + count] = self._uniforms.of(seed, count, skip + drawn)
        self._drawn_R[row] += count

    def uniform(self, row_N: np.ndarray) -> np.ndarray:
        """The uniform number of each row's next token."""
        for row in row_N[self._made_R[row_N] == self._drawn_R[row_N]].tolist():
            self._draw(row, int(min(self._limit_R[row] - self._drawn_R[row], self._drawn_R[row])))
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
