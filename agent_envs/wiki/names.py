"""Names of the fictional worlds: one part of A and one of B, in two languages that run in parallel.

Invariants: all parts have the same length, so none is a prefix of another; a syllable is one Chinese character, so a
name is written the same way everywhere; each pair of parts belongs to exactly one split, by a hash that knows no seed.
So a name of a validation or test world never occurs whole in training, while every part of it does.
"""

from functools import cache
from hashlib import blake2b

_FIRST = """
fena beha volu nehu navo rore karo suka rodo redu masu xiye mimo teva bojo xisu duza diso haku govi luta zedo neri dupa
padi fehu gofi digo bedu vosa luzu bena neha xine yuye dota ribe zato rosu midu fiso moye jope nake jolu keto yuxi lule
"""
_SECOND = """
huno dofi bomo sule nayu gosa nipe gafe zudi kani soto yufe vope haso somi zabo kele reza fimo boni gava leyu tazu kugi
hute kubo huga givi sare lano vagi mavo zexi peno zeza zugi riku noma kajo teri paro tike dila gaka yema josa vata nife
"""
_SYLLABLES = """
be贝 lu鲁 ka卡 di迪 do多 vo沃 fe费 ni尼 ga加 ro罗 ha哈 mi米 jo乔 la拉 mo莫 ne内 pa帕 re雷 sa萨 ta塔 te特 ti蒂 to托 va瓦
vi维 xi希 yu尤 za扎 zu祖 ku库 go戈 bo博 du杜 fi菲 hu胡 ke克 le勒 ma马 na纳 pe佩 ri里 so索 su苏 ze泽 ye耶 gi吉 no诺
"""
_A, _B = _FIRST.split(), _SECOND.split()
_CHARACTER = {syllable[:2]: syllable[2] for syllable in _SYLLABLES.split()}

_VALID_BELOW, _TEST_BELOW = 10, 30  # percent of all pairs: valid 10, test 20, train the rest


def parts(language: str) -> tuple[list[str], list[str]]:
    """The first and second parts of names, in the same order in every language."""
    return [_write(part, language) for part in _A], [_write(part, language) for part in _B]


def _write(part: str, language: str) -> str:
    if language == "zh":
        return _CHARACTER[part[:2]] + _CHARACTER[part[2:]]
    return part.capitalize()


def split_of(a: int, b: int) -> str:
    """The one split that may use the name of parts number `a` and `b`."""
    percent = int.from_bytes(blake2b(f"{_A[a]} {_B[b]}".encode(), digest_size=4).digest(), "big") % 100
    if percent < _VALID_BELOW:
        return "valid"
    return "test" if percent < _TEST_BELOW else "train"


@cache
def names_of(split: str) -> tuple[dict[str, str], ...]:
    """All names of a split, each as language → name, in a fixed order."""
    (a_en, b_en), (a_zh, b_zh) = parts("en"), parts("zh")
    return tuple(
        {"en": f"{a_en[a]} {b_en[b]}", "zh": a_zh[a] + b_zh[b]}
        for a in range(len(_A))
        for b in range(len(_B))
        if split_of(a, b) == split
    )
