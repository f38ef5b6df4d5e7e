"""Answers that somebody might write to crash, hang or take over whatever checks them."""

from random import Random

CARRIED_OUT = (
    "__import__('os').system('touch {}')",
    "open('{}', 'w').close()",
    "__import__('subprocess').run(['touch', '{}'])",
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'] and open('{}', 'w').close()",
)
"""Python that makes a file."""


def hostile_answers(count: int, marker: str, seed: int = 0) -> list[str]:
    """``count`` answers, none of which has the value of 85; code among them makes the file ``marker``."""
    rng = Random(seed)
    return [_KINDS[i % len(_KINDS)](rng, marker) for i in range(count)]


def _tower(rng: Random, marker: str) -> str:
    sign = rng.choice(["^", "**", "^{"])
    text = sign.join(str(rng.randint(2, 99)) for _ in range(rng.randint(3, 30)))
    return text + "}" * text.count("{")


def _large(rng: Random, marker: str) -> str:
    return rng.choice(
        ["10^{%d}", "\\frac{1}{9^{%d}}", "%d!", "(%d!)!", "\\binom{%d}{77}", "2^{%d}-1", "1e%d", "0.%d^{-999}"]
    ) % rng.randint(100, 10**6)


def _braces(rng: Random, marker: str) -> str:
    left, right = rng.choice(["{}", "()", "[]"])
    depth = rng.choice([5, 11, 100, 10_000])
    return left * depth + "1" + right * rng.choice([depth, 0, depth - 1])


def _nested(rng: Random, marker: str) -> str:
    outer = rng.choice(
        ["\\sqrt{%s}", "\\frac{1}{%s}", "\\boxed{%s}", "\\left(%s\\right)", "e^{%s}", "%s!", "\\text{%s}"]
    )
    text = "x"
    for _ in range(rng.randint(2, 40)):
        text = outer % text
    return text


def _long(rng: Random, marker: str) -> str:
    piece = rng.choice(["9", "x+", "\\frac", "é", "9,", "\\\\", "  ", "1+1="])
    return piece * (rng.choice([250, 5_000, 1_000_000]) // len(piece))


def _digits(rng: Random, marker: str) -> str:
    alphabet = rng.choice(["٠١٢٣٤٥٦٧٨٩", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗", "⁰¹²³⁴⁵⁶⁷⁸⁹", "⓪①②③④⑤⑥⑦⑧⑨", "०१२३४५६७८९", "OI234567B9"])
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 12)))


def _code(rng: Random, marker: str) -> str:
    text = rng.choice(CARRIED_OUT).format(marker)
    return rng.choice(["%s", "\\text{%s}", "x = %s", "$%s$", "%s + 84"]) % text


def _odd(rng: Random, marker: str) -> str:
    return rng.choice(
        [
            "", " ", "}", "{", "\\", "\\boxed{", "\x00", "\ud800", "\u202e58", "nan", "inf", "-", "zoo", "oo", "I",
            "True", "lambda: 0", "{0}", "%s", "\\frac{1}{0}", "\\sum_{i=1}^{99999} i^i", "\\int_0^{\\infty} e^{x^x} dx",
            "\\lim_{x \\to 0} x^x", "\\begin{matrix}1&2\\end{matrix}", "\\begin{cases}", "1=2", "x=y=z", "0^0", "84,86",
            "\\{1,2,3", "[0,\\infty)", "85 or 86", "\\pi^{\\pi^{\\pi}}", "\\input{/etc/passwd}", "\\write18{touch x}",
        ]
    )  # fmt: skip


def _endless(rng: Random, marker: str) -> str:
    """Short enough to be sent, and nothing that would ever be computed."""
    return rng.choice(["((%d!)!)!", "(((%d!)!))!", "\\frac{((%d!)!)!}{2}"]) % rng.randint(8, 12)


_KINDS = (_tower, _large, _braces, _nested, _long, _digits, _code, _odd, _endless)
