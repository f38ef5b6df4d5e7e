"""The space of texts, and how Gymnasium's vector environments carry them between processes."""

from collections.abc import Iterable, Sequence
from ctypes import c_uint8
from typing import Any, overload

import gymnasium
import numpy as np
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

MOST_SHARED = 1 << 18
"""Bytes of a text in memory that processes share, its length included; a longer one needs shared_memory=False."""
_HEAD = 4


class AnyText(gymnasium.Space[str]):
    """Every Unicode string. Gymnasium's `Text` enumerates its characters: slow, and never all of Unicode."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """A short random string over several scripts (no surrogates); masks are not supported and must be None."""
        if mask is not None or probability is not None:
            raise ValueError("AnyText.sample takes neither mask nor probability")
        alphabet = "abcXYZ 019()<>/{}[]:,.\n动作（）：搜索éß\u200bЖ🙂"
        picks = self.np_random.integers(len(alphabet), size=int(self.np_random.integers(1, 24)))
        return "".join(alphabet[i] for i in picks)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def to_jsonable(self, sample_n: Iterable[str]) -> list[Any]:
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        return [str(item) for item in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    def __repr__(self) -> str:
        return "AnyText()"


@create_shared_memory.register(AnyText)
def _create(space: AnyText, n: int = 1, ctx: Any = None) -> Any:
    """Memory for the texts of ``n`` environments."""
    return ctx.Array(c_uint8, n * MOST_SHARED)


@write_to_shared_memory.register(AnyText)
def _write(space: AnyText, index: int, value: str, shared_memory: Any) -> None:
    """Raises ValueError for a text that does not fit."""
    data = value.encode("utf-8", "surrogatepass")
    if len(data) > MOST_SHARED - _HEAD:
        raise ValueError(
            f"a text of {len(data)} bytes does not fit into shared memory: make_vec(..., "
            "vector_kwargs={'shared_memory': False})"
        )
    start = index * MOST_SHARED
    bytes_N = np.frombuffer(shared_memory.get_obj(), np.uint8)
    bytes_N[start : start + _HEAD + len(data)] = np.frombuffer(len(data).to_bytes(_HEAD, "big") + data, np.uint8)


class SharedTexts(Sequence[str]):
    """The texts as they are in shared memory now; a deep copy, which vector environments return, is a tuple."""

    def __init__(self, memory: Any, n: int) -> None:
        self._memory, self._n = memory, n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._n)))
        start = range(self._n)[index] * MOST_SHARED
        view = memoryview(self._memory.get_obj()).cast("B")
        size = int.from_bytes(view[start : start + _HEAD], "big")
        return bytes(view[start + _HEAD : start + _HEAD + size]).decode("utf-8", "surrogatepass")

    def __deepcopy__(self, memo: Any) -> tuple[str, ...]:
        return tuple(self)


@read_from_shared_memory.register(AnyText)
def _read(space: AnyText, shared_memory: Any, n: int = 1) -> SharedTexts:
    return SharedTexts(shared_memory, n)
