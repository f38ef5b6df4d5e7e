"""Kinds of entities of a fictional world, their relations, and the words for both.

`MISTAKES` is the fixed table of the flawed demonstrator: asked for the key it takes the value, which stands on the same
page and leads to a thing of the same kind wherever possible.
"""

COUNTRY, CITY, PERSON, RIVER, FIRM = "country", "city", "person", "river", "firm"

KINDS: dict[str, dict[str, str]] = {
    COUNTRY: {"en": "country", "zh": "国家"},
    CITY: {"en": "city", "zh": "城市"},
    PERSON: {"en": "person", "zh": "人物"},
    RIVER: {"en": "river", "zh": "河流"},
    FIRM: {"en": "firm", "zh": "公司"},
}

RELATIONS: dict[str, str] = {
    "ally": "盟友",
    "birthplace": "出生地",
    "born": "生年",
    "capital": "首都",
    "country": "国家",
    "employer": "雇主",
    "explorer": "探险家",
    "founded": "建立",
    "founder": "奠基人",
    "friend": "朋友",
    "head": "总裁",
    "length": "长度",
    "mayor": "市长",
    "mouth": "河口",
    "owner": "东家",
    "rival": "对手",
    "river": "河流",
    "ruler": "君主",
    "seat": "总部",
    "source": "源头",
    "spouse": "配偶",
    "teacher": "老师",
    "tributary": "支流",
    "twin": "友城",
}
"""English relation → Chinese relation."""

FACTS: dict[str, dict[str, str | None]] = {
    COUNTRY: {"capital": CITY, "ruler": PERSON, "river": RIVER, "ally": COUNTRY, "rival": COUNTRY, "founded": None},
    CITY: {"country": COUNTRY, "mayor": PERSON, "river": RIVER, "founder": PERSON, "twin": CITY, "founded": None},
    PERSON: {
        "birthplace": CITY, "spouse": PERSON, "teacher": PERSON, "friend": PERSON, "employer": FIRM, "born": None,
    },
    RIVER: {"source": CITY, "mouth": CITY, "tributary": RIVER, "explorer": PERSON, "length": None},
    FIRM: {"head": PERSON, "owner": PERSON, "seat": CITY, "rival": FIRM, "founded": None},
}  # fmt: skip
"""Kind → relation → kind of its object (None: a number)."""

NUMBERS: dict[str, tuple[int, int]] = {"founded": (1000, 1899), "born": (1900, 1999), "length": (1000, 8999)}
"""Relation → lowest and highest value of its number."""

MISTAKES: dict[str, str] = {
    "spouse": "friend",
    "teacher": "friend",
    "mayor": "founder",
    "rival": "ally",
    "head": "owner",
    "source": "mouth",
}


def word(relation: str, language: str) -> str:
    """A relation as it is written on pages and in questions."""
    return RELATIONS[relation] if language == "zh" else relation
