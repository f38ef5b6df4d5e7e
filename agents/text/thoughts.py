"""The end of a thought factor: the token whose text completes a blank line.

Invariants: the cut is made between tokens as they were sampled, nothing is decoded while sampling; a turn that is cut
holds something before its blank line, so that empty factors merge with the one after them. A blank line may be complete
within one token (".\\n\\n") or over two ("\\n", "\\n"). A token that is only a part of a character counts as something.

Shapes: V vocabulary, R rows, N of them that sampled a token now.
"""

from collections.abc import Sequence

import numpy as np

_BLANK = "\n\n"


class ThoughtEnds:
    """What the automaton must know of every token; made once for a tokenizer. Two of them are never equal."""

    def __init__(self, texts: Sequence[str]) -> None:
        """``texts`` are those of the tokens 0, 1, …; tokens beyond them have no text."""
        texts = [*texts, ""]
        self._leads_V = np.array([text.startswith("\n") for text in texts])
        self._trails_V = np.array([text.endswith("\n") for text in texts])
        self._says_V = np.array([bool(text.strip()) for text in texts])
        self._blank_V = np.array([_BLANK in text for text in texts])
        self._whole_V = np.array([bool(text.rpartition(_BLANK)[0].strip()) for text in texts])
        """A blank line with something before it, in the token itself."""

    def advance(self, state_N: np.ndarray, token_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(new state, whether the thought ends) after each row's ``token_N``.

        State: 1 where the turn ends with a line break so far, plus 2 where it holds more than white space.
        """
        token_N = np.minimum(token_N, len(self._leads_V) - 1)
        trailed_N, said_N = state_N % 2 == 1, state_N >= 2
        completes_N = self._blank_V[token_N] | (trailed_N & self._leads_V[token_N])
        ends_N = completes_N & (said_N | self._whole_V[token_N])
        return self._trails_V[token_N] + 2 * (said_N | self._says_V[token_N]), ends_N

    def state(self, tokens: Sequence[int]) -> int:
        """The state after these tokens of a turn."""
        state = np.zeros(1, dtype=np.int64)
        for token in tokens:
            state, _ = self.advance(state, np.array([token]))
        return int(state[0])

    def length(self, tokens: Sequence[int], begun: Sequence[int] = ()) -> int | None:
        """How many of ``tokens``, which follow what was ``begun``, the thought takes; None when it does not end."""
        state = np.array([self.state(begun)])
        for count, token in enumerate(tokens, 1):
            state, ends = self.advance(state, np.array([token]))
            if ends[0]:
                return count
        return None


class Cuts:
    """The automaton's state in every row of an engine."""

    def __init__(self, slots: int) -> None:
        self.ends: ThoughtEnds | None = None
        """Of the tokenizer of all requests that are to be cut."""
        self._on_R = np.zeros(slots, dtype=bool)
        self._state_R = np.zeros(slots, dtype=np.int64)

    def begin(self, row: int, ends: ThoughtEnds | None, begun: Sequence[int]) -> None:
        """A turn is sampled in ``row``, of which the tokens ``begun`` were sampled before."""
        self._on_R[row] = ends is not None
        if ends is not None:
            self._state_R[row] = ends.state(begun)

    def after(self, row_N: np.ndarray, token_N: np.ndarray) -> np.ndarray:
        """Which rows' thoughts end with the tokens that were sampled now."""
        if self.ends is None or not self._on_R[row_N].any():
            return np.zeros(len(row_N), dtype=bool)
        self._state_R[row_N], ends_N = self.ends.advance(self._state_R[row_N], token_N)
        return ends_N & self._on_R[row_N]
