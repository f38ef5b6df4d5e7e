"""What there is in houses: rooms, places, things, and which thing fits where. Our own table, not ALFWorld's.

Names are written as ALFWorld writes them: in small letters, in one word.
"""

from collections.abc import Mapping

from agent_envs.adapters.household.config import Kind

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe", "laundryhamper"})
"""Kinds of places that are opened and closed."""
LAMP = "desklamp"
"""The kind of things that is switched on."""
KNIVES = frozenset({"knife", "butterknife"})
"""What is sliced with."""
APPLIANCES: Mapping[Kind, str] = {Kind.CLEAN: "sinkbasin", Kind.HEAT: "microwave", Kind.COOL: "fridge"}
"""Where a thing is changed."""

_FOOD = ("apple", "bread", "egg", "lettuce", "potato", "tomato")
_DISHES = ("bowl", "cup", "mug", "plate")
_PANS = ("kettle", "pan", "pot")
_CUTLERY = ("butterknife", "fork", "knife", "ladle", "spatula", "spoon")
_JARS = ("peppershaker", "saltshaker", "winebottle")
_PAPER = ("book", "newspaper", "pen", "pencil")
_POCKET = ("cd", "cellphone", "creditcard", "keychain", "watch")
_PARLOUR = ("box", "candle", "laptop", "remotecontrol", "statue", "vase")
_WASH = ("cloth", "soapbar", "soapbottle", "spraybottle", "tissuebox", "toiletpaper")

_TABLE = (*_FOOD, *_DISHES, *_PANS, *_CUTLERY, *_JARS)
_SURFACE = (*_PAPER, *_POCKET, *_PARLOUR, "tissuebox")
FITS: Mapping[str, frozenset[str]] = {
    kind: frozenset(things)
    for kind, things in {
        "armchair": (*_PAPER, *_POCKET, "box", "laptop", "pillow", "remotecontrol"),
        "bathtubbasin": ("cloth", "soapbar"),
        "bed": ("book", "cellphone", "cd", "laptop", "newspaper", "pillow"),
        "cabinet": (*_DISHES, *_PANS, *_JARS, *_WASH, "candle", "vase"),
        "coffeemachine": ("cup", "mug"),
        "coffeetable": (*_SURFACE, *_DISHES),
        "countertop": (*_TABLE, *_WASH, *_PAPER, *_POCKET, "candle"),
        "desk": (*_SURFACE, *_DISHES, LAMP),
        "diningtable": (*_TABLE, *_PAPER, *_POCKET, "candle", "vase"),
        "drawer": (*_CUTLERY, *_PAPER, *_POCKET, "cloth", "candle", "soapbar", "toiletpaper"),
        "dresser": (*_SURFACE, LAMP),
        "fridge": (*_FOOD, *_DISHES, "pan", "pot", "winebottle"),
        "garbagecan": (*_FOOD, *_PAPER, "cd", *_WASH),
        "laundryhamper": ("cloth",),
        "microwave": ("apple", "bread", "egg", "potato", "tomato", *_DISHES),
        "safe": (*_POCKET, "statue"),
        "shelf": (*_SURFACE, *_DISHES, *_JARS, *_WASH),
        "sidetable": (*_SURFACE, *_DISHES, *_WASH, LAMP),
        "sinkbasin": (*_FOOD, *_DISHES, *_CUTLERY, *_PANS, "cloth", "soapbar"),
        "sofa": (*_PAPER, *_POCKET, "box", "laptop", "pillow", "remotecontrol"),
        "stoveburner": _PANS,
        "toilet": ("candle", "cloth", "soapbar", "soapbottle", "spraybottle", "tissuebox", "toiletpaper"),
        "tvstand": (*_SURFACE,),
    }.items()
}
"""Kind of places → kinds of things that can be put there."""

ROOMS: Mapping[str, tuple[Mapping[str, int], tuple[str, ...]]] = {
    "kitchen": (
        {
            "cabinet": 6,
            "coffeemachine": 1,
            "countertop": 2,
            "diningtable": 1,
            "drawer": 5,
            "fridge": 1,
            "garbagecan": 1,
            "microwave": 1,
            "shelf": 3,
            "sinkbasin": 1,
            "stoveburner": 4,
        },
        _TABLE,
    ),
    "bedroom": (
        {
            "armchair": 1,
            "bed": 1,
            "desk": 1,
            "drawer": 6,
            "dresser": 1,
            "garbagecan": 1,
            "laundryhamper": 1,
            "safe": 1,
            "shelf": 6,
            "sidetable": 2,
        },
        (*_PAPER, *_POCKET, "box", "cloth", "laptop", "mug", "pillow", "statue", "vase", LAMP),
    ),
    "living room": (
        {
            "armchair": 2,
            "cabinet": 4,
            "coffeetable": 1,
            "drawer": 4,
            "dresser": 1,
            "garbagecan": 1,
            "shelf": 4,
            "sidetable": 2,
            "sofa": 1,
            "tvstand": 1,
        },
        (*_PAPER, *_POCKET, *_PARLOUR, "bowl", "pillow", "plate", "tissuebox", LAMP),
    ),
    "bathroom": (
        {
            "bathtubbasin": 1,
            "cabinet": 6,
            "countertop": 2,
            "drawer": 6,
            "garbagecan": 1,
            "laundryhamper": 1,
            "shelf": 3,
            "sidetable": 1,
            "sinkbasin": 2,
            "toilet": 1,
        },
        (*_WASH, "candle"),
    ),
}
"""Room → (kinds of places with the most there can be of each, kinds of things)."""

CHANGES: Mapping[Kind, frozenset[str]] = {
    Kind.CLEAN: frozenset({*_FOOD, *_DISHES, *_CUTLERY, *_PANS, "cloth", "soapbar"} - {"bread"}),
    Kind.HEAT: frozenset({"apple", "bread", "cup", "egg", "mug", "plate", "potato", "tomato"}),
    Kind.COOL: frozenset({*_FOOD, *_DISHES, "pan", "pot", "winebottle"}),
}
"""Kinds of things that can be cleaned, heated and cooled."""
SLICEABLE = frozenset({"apple", "bread", "lettuce", "potato", "tomato"})
"""Kinds of things that can be sliced."""
STATES: Mapping[Kind, str] = {Kind.CLEAN: "clean", Kind.HEAT: "hot", Kind.COOL: "cool"}
"""What a thing is after it was changed."""
