"""References about codes: letters as others, as marks, numbers or bits."""
# Plain code that a beginner would write, shown to agents as it stands: no types, no idioms that a linter would prefer.
# mypy: ignore-errors
# ruff: noqa: PERF401

from agent_envs.code.tasks.inputs import (
    args,
    between,
    digit,
    either,
    letters,
    listed,
    one_of,
    smalls,
    spelled,
    text,
    word,
)
from agent_envs.code.tasks.reference import reference

_af = spelled("abcdef", 0, 5)


@reference(
    "The text with a for f, b for e, c for d, and the other way round.", "a 与 f、b 与 e、c 与 d 互换。", args(_af)
)
def mirror_letters(text):
    table = "abcdef"
    result = ""
    for char in text:
        result += table[5 - table.find(char)]
    return result


@reference(
    "The number of each letter: 1 for a, 2 for b and so on.",
    "每个字母的序号：a 为 1，b 为 2，依此类推。",
    args(spelled("abcdexyz", 0, 5)),
)
def letter_numbers(text):
    result = []
    for char in text:
        result.append(ord(char) - ord("a") + 1)
    return result


@reference(
    "The letters of numbers: a for 1, b for 2 …, a point for 0.",
    "序号对应的字母：1 为 a，2 为 b……，0 为点。",
    args(smalls),
)
def number_letters(numbers):
    result = ""
    for n in numbers:
        result += ".abcdef"[n]
    return result


@reference(
    "The letters as marks: a is .-, b is -.., c is --., a / after each.",
    "把字母写成记号：a 为 .-，b 为 -..，c 为 --.，每个后面加 /。",
    args(letters),
)
def to_marks(text):
    table = {"a": ".-", "b": "-..", "c": "--."}
    result = ""
    for char in text:
        result += table[char] + "/"
    return result


@reference(
    "The bits with one more at the end, so that the number of 1 is even.",
    "在末尾加一位，使 1 的个数为偶数。",
    args(spelled("01", 0, 6)),
)
def even_bits(bits):
    if bits.count("1") % 2 == 1:
        return bits + "1"
    return bits + "0"


@reference(
    "The bits with 0 for 1 and 1 for 0, from the end to the start.",
    "把 0 与 1 互换，并前后反过来。",
    args(spelled("01", 0, 6)),
)
def other_bits(bits):
    result = ""
    for bit in bits:
        result = str(1 - int(bit)) + result
    return result


@reference(
    "The word and ay when it begins with one of aeiou, else the word with its first letter at the end, and ay.",
    "元音字母（aeiou）开头的词加 ay，否则把首字母移到末尾再加 ay。",
    args(either(word, spelled("abeo", 1, 4))),
)
def ay_word(word):
    if word[0] in "aeiou":
        return word + "ay"
    return word[1:] + word[0] + "ay"


@reference(
    "The chars of the first half (the larger one) and of the second half in turn.",
    "轮流取前一半（较长的一半）与后一半的字符。",
    args(either(word, letters)),
)
def join_halves(text):
    half = (len(text) + 1) // 2
    result = ""
    for i in range(half):
        result += text[i] + text[half + i : half + i + 1]
    return result


@reference(
    "The last digit of the sum of each digit times its place, counted from 1.",
    "各数字乘其位置（从 1 数）之和的个位。",
    args(listed(digit, 0, 5)),
)
def place_digit(digits):
    total = 0
    for i in range(len(digits)):
        total += digits[i] * (i + 1)
    return total % 10


@reference(
    "The text with its vowels as their places in aeiou, from 1.",
    "把元音字母换成它在 aeiou 中的位置（从 1 数）。",
    args(text),
)
def number_vowels(text):
    for i in range(5):
        char = "aeiou"[i]
        text = text.replace(char, str(i + 1))
    return text


@reference(
    "The letters of marks with / between them: .- is a, -.. is b, --. is c, others are *.",
    "用 / 隔开的记号表示的字母：.- 为 a，-.. 为 b，--. 为 c，其他为 *。",
    args(lambda rng: "/".join(rng.choice((".-", "-..", "--.", ".", "..")) for _ in range(rng.randint(1, 4)))),
)
def from_marks(text):
    table = {".-": "a", "-..": "b", "--.": "c"}
    result = ""
    for part in text.split("/"):
        if part in table:
            result += table[part]
        else:
            result += "*"
    return result


@reference(
    "The places, from 0 at the end, at which n in base 2 has a 1.",
    "n 的二进制中为 1 的位置，末位为 0。",
    args(between(0, 60)),
)
def bit_places(n):
    result = []
    place = 0
    while n > 0:
        if n % 2 == 1:
            result.append(place)
        n = n // 2
        place += 1
    return result


@reference(
    "For each place 1 when the bits of a and b there differ, else 0.",
    "a 与 b 同一位不同为 1，相同为 0。",
    args(spelled("01", 4, 4), spelled("01", 4, 4)),
)
def differ_bits(a, b):
    result = ""
    for i in range(len(a)):
        if a[i] == b[i]:
            result += "0"
        else:
            result += "1"
    return result


@reference(
    "Each letter moved on in abcdef (after f comes a) by the next number of key, which begins again at its end.",
    "每个字母在 abcdef 中（f 之后是 a）后移 key 的下一个数，key 用完后从头再来。",
    args(_af, listed(between(0, 5), 1, 3)),
)
def shift_by_key(text, key):
    table = "abcdef"
    result = ""
    for i in range(len(text)):
        step = key[i % len(key)]
        place = table.find(text[i]) + step
        result += table[place % len(table)]
    return result


@reference(
    "The text with an o and the letter again after each letter that is not in aeiou.",
    "每个非元音（aeiou）字母后加 o 再重复该字母。",
    args(either(word, spelled("abeo", 1, 4))),
)
def letters_with_o(text):
    result = ""
    for char in text:
        result += char
        if char not in "aeiou":
            result += "o" + char
    return result


@reference(
    "Number n of a, b, c, aa, ab, ac and so on in the order of letters; empty for 0.",
    "a、b、c、aa、ab、ac、ba……中的第 n 个，0 为空。",
    args(between(0, 60)),
)
def in_letters(n):
    result = ""
    while n > 0:
        n -= 1
        result = "abc"[n % 3] + result
        n = n // 3
    return result


@reference(
    "The number of Roman letters (X, V, I); one before a larger one is taken away.",
    "罗马数字（X、V、I）的值，小的在大的之前时减去。",
    args(one_of(*"I II III IV V VI VII VIII IX X XI XIV XV XVI XIX XX XXI XXIV XXIX XXX XXXIV".split())),  # noqa: SIM905
)
def roman_value(text):
    values = {"I": 1, "V": 5, "X": 10}
    total = 0
    last = 0
    for char in text[::-1]:
        if values[char] < last:
            total -= values[char]
        else:
            total += values[char]
        last = values[char]
    return total
