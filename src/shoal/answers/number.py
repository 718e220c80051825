r"""The number that an answer gives, as a person reads it.

    number("So she pays -$1,200.50.")       # Number(Fraction(-2401, 2))
    number("5 or 6")                         # None: it names two and says of neither that it is the answer
    same(number("50 %"), number("0.5"))      # True

Own code, since price-parser and babel read neither signs before a currency nor exponents, fractions and LaTeX, and
math-verify takes a hundred times as long.
"""

import re
import unicodedata
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from shoal.answers.place import bare

MOST_DIGITS: Final = 400
"""Of a number, and the highest power of ten."""
MOST_READ: Final = 400
"""Characters of a sentence, the last ones."""
_ONE, _DIGIT = Fraction(1), re.compile(r"\d")


class Number(NamedTuple):
    """A number with what its unit multiplies it by."""

    value: Fraction
    scale: Fraction = _ONE
    """1/100 of "50 %", 1000000 of "3 million"; otherwise 1."""

    def __str__(self) -> str:
        shown = shortest(self.value)
        return shown + {1: "", Fraction(1, 100): " %"}.get(self.scale, f" * {self.scale}")


def same(one: Number, other: Number) -> bool:
    """Whether two numbers are equal. Where only one has a percent sign or a word such as million, this may be its
    unit: 50 % is 0.5, and also 50 where percent are asked for."""
    if one.scale == other.scale or ((one.scale == 1) != (other.scale == 1) and one.value == other.value):
        return one.value == other.value
    return one.value * one.scale == other.value * other.scale


def shortest(value: Fraction) -> str:
    """The number as people write it: decimals where they end, otherwise a fraction."""
    try:
        return f"{_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)):f}"
    except Inexact:
        return f"{value.numerator}/{value.denominator}"


_EXACT: Final = Context(prec=4 * MOST_DIGITS, traps=[Inexact])


@cache
def _ascii() -> dict[int, str]:
    """Digits of all scripts, and the signs around them, as they are written in ASCII."""
    table = {
        code: str(unicodedata.digit(chr(code)))
        for code in range(0x660, 0x1FBFA)
        if unicodedata.category(chr(code)) == "Nd"
    }
    table |= dict.fromkeys(map(ord, "−﹣－‐‑"), "-") | dict.fromkeys(map(ord, "‒–—―"), "–")
    table |= dict.fromkeys((0xA0, *range(0x2004, 0x200B), 0x202F), "\u2009") | dict.fromkeys(map(ord, "’ʼ‘"), "'")
    table |= {ord(sign): plain for sign, plain in zip("٫٬⁄∕×⋅·∙", ".,//****", strict=True)}
    table |= {ord(wide): narrow for wide, narrow in zip("，．％＋＄￥／＝（）：٪﹪", ",.%+$¥/=():%%", strict=True)}
    table |= {ord(mark): f"^{digit}" for digit, mark in zip("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", strict=True)}
    for mark in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒":
        table[ord(mark)] = " " + unicodedata.normalize("NFKC", mark).replace("⁄", "/")
    return table


_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|boxed)\s{0,4}\{([^{}]*)\}")
_FRACTION = re.compile(
    r"\\[dtc]?frac\s{0,4}(?:\{\s{0,4}([-+]?)([\d.,]+)\s{0,4}\}|()(\d))\s{0,4}(?:\{\s{0,4}(-?)([\d.,]+)\s{0,4}\}|()(\d))"
)


def _over(found: re.Match[str]) -> str:
    """A fraction of LaTeX in one line: its sign, and what stands above and below."""
    sign, above, under, below = (one for one in found.groups() if one is not None)
    return f" {'-' * ((sign == '-') != (under == '-'))}{above}/{below} "


_ABSOLUTE = re.compile(r"^([^|\n]*)(?:\\left)?\|\s?-\s?(\d[\d.,]*)\s?(?:\\right)?\|([^|\n]*)$", re.MULTILINE)


def plain(text: str) -> str:
    """The text in ASCII as far as numbers go, without LaTeX."""
    if not text.isascii():
        if "⁄" in text:  # ³⁄₄
            text = re.sub(r"[⁰¹²³⁴-⁹]{1,9}⁄[₀-₉]{1,9}", lambda found: unicodedata.normalize("NFKC", found[0]), text)
        text = text.translate(_ascii())
        text = re.sub(r"(?<=\^[\d-])\^(?=\d)", "", text)  # 10¹² has two superscripts
    if re.search(r"[\\{~|]", text):
        text = _ABSOLUTE.sub(r"\1\2\3", re.sub(r"\\[lr]vert\b", "|", text))
        text = (
            text.replace("{,}", ",").replace("\\!", "").replace("\\%", "%").replace("\\$", "$").replace("\\cdot", "*")
        )
        text = text.replace("\\times", "*").replace("\\left", "").replace("\\right", "")
        text = re.sub(r"\\[,;: ]|~", "\u2009", re.sub(r"~~[^~\n]{1,80}~~", "", text))
        text = re.sub(r"\\pmod\s?\{?\d{1,9}\}?", "", text)
        for _ in range(2):
            text = _TEXT.sub(r" \1 ", text)
        text = re.sub(r"\{\s?([\d.]{1,40})\s?\\over\s?([\d.]{1,40})\s?\}", r"\\frac{\1}{\2}", text)
        text = _FRACTION.sub(_over, text)
        text = re.sub(r"(?<![\^_\w}])\{([\d.,]+)\}", r"\1", text)
    if "(-" in text:
        text = re.sub(r"(?<![\w)])-\s?\(-(\d[\d.,]*)\)", r"\1", text)
    return re.sub(r"(?<=\d)[*_`]{1,3}(?![\d\s(*])|(?<!\d)[*_`]{2,3}|[*_`]{2,3}(?!\d)", "", text)  # bold


_CURRENCY = r"(?:[$€£¥₹₩₽₺₫₪฿₱₦]|(?:US|A|C|NZ|HK)\$|USD|EUR|GBP|CHF|INR|JPY|Rs\.?|R\$)"
_SCALES: Final = {
    **{"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12},
    **{"lakh": 10**5, "crore": 10**7, "k": 10**3, "m": 10**6, "b": 10**9, "bn": 10**9},
}
"""What words and, behind a currency, letters multiply by."""


def _whole(group: str) -> str:
    """The digits before the point: in groups of three, in India's groups, in groups with spaces, or without groups."""
    g = re.escape(group)
    threes = rf"\d{{1,3}}(?:{g}\d{{3}})+(?!\d)"
    indian = rf"\d{{1,2}}(?:{g}\d{{2}}(?!\d)){{1,6}}{g}\d{{3}}(?!\d)"
    spaced = r"\d{1,3}(?:[\u2009' _]\d{3})+(?!\d)"
    dotted = r"\d{1,3}(?:\.\d{3}){2,}(?!\.?\d)"  # which can be no decimal point
    return rf"(?:{threes}|{indian}|{spaced}|{dotted}|\d+)"


def _token(group: str, point: str) -> re.Pattern[str]:
    p = re.escape(point)
    other = r"|\.\d{1,2}(?!\d)|\.\d{4,}" if point == "," else ""  # 3.5 can only be a decimal point, too
    number = rf"(?:{_whole(group)}(?:{p}\d+{other})?|(?<![\w.)]){p}\d+)"
    return re.compile(
        rf"""
        (?<![A-Za-z_\d^])(?<![\^_][-{{(])(?<!\^\{{-)
        (?P<bracket>(?<!\d\ )\()?
        (?:(?P<before>(?<![\w)\]%])[-–+]|(?i:\b(?:minus|negative)\s))[ \u2009]?)?
        (?P<currency>{_CURRENCY}\s?)?
        (?P<after>[-–])?
        (?P<inner>(?<!\d\ )\((?=[\d,. ]+\)))?
        (?P<number>{number})
        (?:
            [eE](?P<exponent>[-+]?\d{{1,4}})(?!\w)
          | \s?[*xX]\s?10\s?(?:\^|\*\*)\s?[{{(]?\s?(?P<ten>[-+]?\d{{1,4}})\s?[}})]?
          | \s?(?:\^|\*\*)\s?[{{(]?\s?(?P<power>[-+]?\d{{1,3}})\s?[}})]?
          | \s?/\s?(?P<below>{number})(?!\d|\s?/)
          | [\s\u2009]{{1,2}}(?:and\s)?(?P<over>\d{{1,9}})/(?P<under>\d{{1,9}})(?!\d|\s?/)
        )?
        (?P<closed>\))?
        (?:
            \s?(?P<percent>%|(?i:percent\b|per\scent\b|pct\b))
          | \s(?P<scale>(?i:{"|".join(word for word in _SCALES if len(word) > 2)}))s?\b
          | \s?(?P<letter>[kKmMbB]|bn)(?(currency)\b|(?:(?<=\d[kKM])\b|(?=\s(?:dollars|euros|USD|EUR)\b)))
        )?
        """,
        re.VERBOSE,
    )


_POINT, _COMMA = _token(",", "."), _token(".", ",")


class Found(NamedTuple):
    """A number in a text."""

    number: Number | None
    """None for one that is a part of a formula: 5π, √7, log 5."""
    text: str
    """As it is written, without marks between thousands, currency and unit."""
    start: int
    end: int


def numbers_in(text: str, comma: bool = False) -> list[Found]:
    """All numbers of a `plain` text. `comma`: a comma stands before decimals."""
    found, formula = [], _FUNCTION.search(text)
    for token in (_COMMA if comma else _POINT).finditer(text):
        value = _value(token, comma)
        if value is not None:
            start = token.start() + (1 if token["bracket"] else 0)
            last = max(token.end(group) for group in ("number", "exponent", "ten", "power", "below", "under"))
            written = token.string[token.start("number") : last]
            groups = rf"(?<=\d)[{'.' if comma else ','}' \u2009](?=\d)"
            written = written if written.isdigit() else re.sub(groups, "", written)
            minus = "-" if (value.value < 0) != written.startswith("-") else ""
            part = formula and (_BEFORE.search(text, max(0, start - 12), start) or _FUNCTION.match(text, token.end()))
            found.append(Found(None if part else value, minus + written, start, token.end()))
    return found


_NAMES: Final = r"\\?\b(?:sqrt|ln|log|exp|sin|cos|tan)\b|√"
_FUNCTION = re.compile(
    rf"\s?\*?\s?(?:\\?\bpi\b|(?<=\d)pi\b|π|{_NAMES})|(?<=0)[xb][\da-fA-F]|_\{{?\d|[inyz](?=[\s.$)}}]*$)|(?<=\d)\}}\s?\{{"
    r"|\^\s?[({]?\s?(?!st\b|nd\b|rd\b|th\b|o\b|circ)[-a-zA-Z]|\\[dt]?frac"
)
_BEFORE = re.compile(
    rf"(?:(?:{_NAMES})(?:\[\d\]|_\{{?\d{{1,3}}\}}?)?|(?:\bpi|π)\s?[/*]|\\[dt]?frac\s?\{{|\}}\s?\{{)\s?[({{]?\s?$"
)
"""What makes the number behind or before it a part of a formula."""


def _value(token: re.Match[str], comma: bool) -> Number | None:
    value = _simple(token["number"], comma)
    if value is None:
        return None
    exponent = token["exponent"] or token["ten"]
    if exponent:
        value = value * Fraction(10) ** int(exponent) if abs(int(exponent)) <= MOST_DIGITS else None
    elif token["power"]:
        power = int(token["power"])
        small = value and abs(power) * max(abs(value.numerator), value.denominator).bit_length() <= 4 * MOST_DIGITS
        value = value**power if small else None
    elif token["below"]:
        below = _simple(token["below"], comma)
        value = value / below if below else None
    elif token["over"]:
        under = int(token["under"])
        value = value + Fraction(int(token["over"]), under) if under else None
    if value is None:
        return None
    signs = [sign for sign in (token["before"], token["after"]) if sign and sign != "+"]
    bracketed = token["bracket"] and token["closed"] and not signs
    grouped = rf"\d[{'.' if comma else ','}' \u2009]\d{{3}}"
    accounting = token["inner"] or (bracketed and (token["currency"] or re.search(grouped, token["number"])))
    if len(signs) % 2 != bool(accounting):
        value = -value
    scale = _ONE
    if token["percent"]:
        scale = Fraction(1, 100)
    elif word := token["scale"] or token["letter"]:
        scale = Fraction(_SCALES[word.lower()])
    return Number(value, scale)


def _simple(text: str, comma: bool) -> Fraction | None:
    """A number of digits and marks between them."""
    if len(text) > MOST_DIGITS:
        return None
    dots = text.count(".")
    point = "." if dots < 2 and (not comma or re.search(r"\.(?:\d{1,2}|\d{4,})$", text)) else ","
    whole, _, decimals = text.partition(point)
    digits = "".join(filter(str.isdigit, whole))
    return Fraction(int(digits + decimals or "0"), 10 ** len(decimals) if decimals else None)


_PREPOSITION = re.compile(
    r"(?<!total )(?<!sum )(?<!profit )\b(?:after|for|from|of|by|in|with|when|because|since|at|per|to|than|every|each|"
    r"if|before|during|on|over|between|not|step|day|part|question|line|example|row|chapter)\s+(?:[a-z]+\s+){0,2}[-+$€£(]{0,3}$",
    re.IGNORECASE,
)
_JOINED = re.compile(
    r"\s{0,3}[a-z%$€£]{0,12}\.?\s{0,3}(?:\b(?:or|and|to|or\s+maybe|oder|und|bis|ou|et)\b|[,/;&|–-])\s{0,3}[-+$€£(]{0,3}",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(
    r"\b(?:so|thus|therefore|hence|finally|altogether|in\s+total|in\s+all|then|makes|leaves|(?:which|that)\s+is)\b|⇒|→|=>|∴",
    re.IGNORECASE,
)
_REASON = re.compile(r"\b(?:because|since|when|if|where|given)\b|,\s(?:as|for|denn|weil|da|car)\b", re.IGNORECASE)
_EXPLAINED = re.compile(
    r"\n\W{0,9}(?:explanation|reasoning|proof|check|verification|erklärung|note|let\sme\sknow|i\shope|feel\sfree)\b",
    re.IGNORECASE,
)
_NOT = re.compile(r"(?:(?:\b(?:not|cannot|nicht|не)|n['’]t)(?:\s(?:be|equal))?|≠|\\neq?)\s{0,3}[$€£]?$", re.IGNORECASE)
_NOTED = re.compile(r"(?<=\w) (?:\((?:[^()]{0,80}[=+*]|(?i:rounded|approx))[^()]{0,80}\)|\[\d{1,2}\](?=[\s.]*$))")
"""A computation in brackets, and the number of a source."""
_COMPARED = re.compile(
    r"(?:\b(?:(?:more|less|greater|fewer|higher|lower|larger|smaller)\sthan|(?:^|\bis\s)up\sto|at\s(?:least|most)|exceed(?:s|ing)?"
    r"|(?<!left\s)(?<!spread\s)over|under|above|below|beyond)\s?|[≤≥⩽⩾≦≧]\s?|\\[gl](?:eq?|eqslant|t)\b\s?"
    r"|(?<![^\s$(])[<>]=?\s?|(?<![</\w])[a-z][<>]=?\s?)[$€£]?$",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\+(?!\s?[\d($€£])|\sat\s(?:least|most)\b|\s?[<>≤≥]=?\s?[a-z](?![a-z>])|(?:\s[a-z]{1,15})?\s(?:or|and)\s(?:more|less"
    r"|fewer|above|below|over|under|up|upwards|higher|lower|greater|older|younger|larger|smaller)\b"
)
"""Before and behind a number that is a bound and no answer."""
_REMARK = re.compile(
    r"(?<=[\d%°²³])((?:\s?°?[^\W\d_][\w.²³]{0,15}){0,4}) "
    r"\((?!\s?(?:or|maybe|perhaps|oder|ou|and|und)\b)(?=[^()]{0,80}[a-zA-Z=])[^()?]{0,80}\)"
)
"""A remark in brackets behind a number and its unit: another unit, a year."""
_ASIDE = re.compile(
    r"(?<=\d)((?:\s[a-z]{1,15}){0,3})(?:,\s(?:which\sis\s)?(?!so\b|and\b|or\b)[^,.;=]{0,40}\b(?:than|as\s\w{1,15}\sas)\s[^,.;=]{0,40}(?=[.;]?$)"
    r"|,\swhich\sis\s\d[\d.]{0,9}\s(?:times|plus|minus)\s\d[\d.]{0,9}(?=[.;]?$)"
    r"|:\s(?:-?\d[\d.]{0,20}(?:,\s(?:and\s)?|\sand\s)){1,99}-?\d[\d.]{0,20}$)"
)
"""What the number before it is compared with, and the list of what was counted."""
_TIME = re.compile(r"(?<![\d:])\d{1,2}:\d{2}(?![\d:])|\b(?:as\sof|in|since|by)\s(?:19|20)\d\d,(?=\s)", re.IGNORECASE)
_STEP = re.compile(r"^\W{0,6}step\s\d{1,3}\s?[:.)]", re.IGNORECASE | re.MULTILINE)
_ROWS = re.compile(  # numbers alone, one under the other; two with names of which none is their result
    r"(?:[-+$€]?\d[\d.,]{0,20}[ \t]{0,9}(?:\n|$)){2,}|[A-Z][a-z]{1,20}: [-+$€]?\d[\d.,]{0,20}[ \t]{0,9}\n"
    r"(?!Total|Answer|Result|Final|Sum|Profit|Change|Cost|Left|All|Solution)[A-Z][a-z]{1,20}: [-+$€]?\d[\d.,]{0,20}\s*"
)
_MAYBE = re.compile(  # a number that is only thought of
    r"(?:\b(?:maybe|perhaps|possibly|(?:could|might|may)\sbe|vielleicht|peut-être|quizás?)\s(?:it(?:['’]s|\sis)\s)?"
    r"|(?:^|[?\n])\s{0,3}(?=[$€£]?-?\d[\d.,]{0,20}\s?\?))[$€£]?(-?\d+(?:[.,]\d+){0,9})",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(r"\b(?:otherwise|else|sonst)\b\D{0,20}\d|\d[^.\d]{0,20}\bif\b", re.IGNORECASE)
_BOTH = re.compile(r"(?:±|\\pm\b|\+/-)\s?[$€£]?\d")
_ONES: Final = "one two three four five six seven eight nine"
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_TEENS: Final = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_SPELLINGS: Final = {
    "zero": 0,
    **{word: value for value, word in enumerate(f"{_ONES} {_TEENS}".split(), 1)},
    **{word: 10 * value for value, word in enumerate(_TENS.split(), 2)},
}
_SMALL: Final = rf"(?:(?:{_TENS})(?:[ -](?:{_ONES}))?|{_TEENS}|{_ONES}|zero)".replace(" ", "|").replace("[|-]", "[ -]")
_HUNDREDS: Final = rf"{_SMALL}(?:[ -]hundred(?:(?: and)? {_SMALL})?)?"
_THOUSANDS: Final = rf"{_HUNDREDS}[ -](?:million|thousand)"
_SPELLED = re.compile(rf"\b(?:{_THOUSANDS}(?:(?:,? | and ){_HUNDREDS})?|{_HUNDREDS})\b", re.IGNORECASE)
_TWICE = re.compile(rf"{_SPELLED.pattern}(?= \([$€£]?\d)|(?<=\d \(){_SPELLED.pattern}(?=\))", re.IGNORECASE)  # five (5)
_PARTS: Final = {"half": 2, "halve": 2, "third": 3, "quarter": 4} | dict(
    zip("fourth fifth sixth seventh eighth ninth tenth".split(), range(4, 11), strict=True)
)
_PART = re.compile(rf"\b(a|{_ONES.replace(' ', '|')})[ -]({'|'.join(_PARTS)})(s?)\b", re.IGNORECASE)
_MINUS = re.compile(
    r"(\b(?:an?|net)\s(?:\w{1,20}\s)?(?:loss|deficit)\sof\s)(?=[$€£]{0,2}\d)"
    r"|(?<![-\d.,])(?=\d[\d.,]{0,20}\s?(?:°\s?[CF]?|degrees(?:\s\w{1,10})?)?\s?below\s(?:zero|0)\b)",
    re.IGNORECASE,
)
"""Before a number that is negative by words."""
_CENTS = re.compile(r"(\$[\d,]{1,15}|\d\s(?:dollars?|euros?|pounds?))(?:,|\sand)?\s(\d{1,2})\s(?:cents?|pence)\b", re.I)
_VERB = re.compile(r"\b(?:is|are|was|were|be|has|have|gets|gives|costs|needs|pays)\b", re.IGNORECASE)
_EQUALS = re.compile(r"[=≈]|\b(?:equals|is\s+equal\s+to)\b", re.IGNORECASE)
_SENTENCE = re.compile(  # or another computation
    r"(?<=[.!?。])\s+(?=\D)|(?<=[!?。])|[;,]\s(?=[$€£(]{0,2}\d[\d.,]{0,20}\s?[-+*/x][^;=]{0,60}=)"
)


def number(text: str, comma: bool = False) -> Number | None:
    """The number that a place of an answer gives: the only one, or the one that its last sentence with numbers ends
    at. None without one, and where several differ and nothing says which of them it is."""
    said = plain(text)
    if not _DIGIT.search(said):
        parts = _PART.sub(_part, re.sub(r"\ba (?=(?:hundred|thousand|million)\b)", "one ", said))
        if parts != said or len(said.split()) < 3 or set(map(str.lower, _SPELLED.findall(said))) != {"one"}:
            said = re.sub(r"(?<=\d) point (?=\d(?! \d))", ".", _SPELLED.sub(_digits, parts))  # "one" may mean anybody
    elif "(" in said:
        said = _TWICE.sub(_digits, said)
    if re.search(r"loss|deficit|below|cent|pence", said):
        said = _MINUS.sub(r"\1-", _CENTS.sub(lambda found: f"{found[1].split()[0]}.{found[2]:0>2}", said))
        said = re.sub(r"\sbelow\s(?:zero|0)\b", "", said)
    if _DIGIT.search(before := _EXPLAINED.split(said, maxsplit=1)[0]):
        said = before
    said = _STEP.sub("", said)
    said = ", ".join(said.split("\n")) if "\n" in said and _ROWS.fullmatch(said) else said
    for line in reversed(said.splitlines()):
        if _DIGIT.search(line):
            for sentence in reversed(_SENTENCE.split(line)):
                last = _ASIDE.sub(r"\1", _REMARK.sub(r"\1 ", _NOTED.sub(" ", _end(sentence))))
                if _DIGIT.search(rest := _TIME.sub(" ", last)):
                    last = rest
                found = [one for one in numbers_in(last, comma) if not _denied(last, one)]
                if found:
                    guessed = _MAYBE.search(last) and len(set(_MAYBE.findall(said))) > 1
                    return None if guessed or _BOTH.search(last) else _chosen(last, found)
    return None


def _part(found: re.Match[str]) -> str:
    """A fraction in words, as digits: a half, three eighths; not the twenty-third."""
    above = _SPELLINGS.get(found[1].lower(), 1)
    return f"{above}/{_PARTS[found[2].lower()]}" if (above > 1) == bool(found[3]) else found[0]


def _denied(text: str, one: Found) -> bool:
    """Whether a number is what the answer is not, or a bound: not 5, more than 5, 5 or less."""
    before = text[max(0, one.start - 40) : one.start]
    return any((_NOT.search(before), _COMPARED.search(before), _OPEN.match(text, one.end)))


def _digits(found: re.Match[str]) -> str:
    """A number in words, as digits."""
    total = part = 0
    for word in re.findall(r"[a-z]+", found[0].lower()):
        if word in ("million", "thousand"):
            total, part = part * _SCALES[word], 0
        else:
            part = 100 * part if word == "hundred" else part + _SPELLINGS.get(word, 0)
    return str(total + part)


def last_number(text: str) -> str | None:
    """The last number in a text as it is written; None without one."""
    found = numbers_in(plain(_end(text)))
    return found[-1].text if found else None


def whole_number(text: str, comma: bool = False) -> Number | None:
    """The number that a text is, with nothing around it but marks and a currency; None if it is anything else."""
    said = plain(bare(text[: 2 * MOST_READ])).strip(" \u2009$")
    found = numbers_in(said, comma) if _DIGIT.search(said) and len(said) <= MOST_READ else []
    if len(found) != 1 or (said[: found[0].start] + said[found[0].end :]).strip(" \u2009()"):
        return None
    return found[0].number


def _end(sentence: str) -> str:
    """The last `MOST_READ` characters of a sentence, from the beginning of a word."""
    if len(sentence) <= MOST_READ:
        return sentence
    return re.sub(r"^\S*", "", sentence[-MOST_READ:])


def _chosen(text: str, found: list[Found]) -> Number | None:
    """The one of several numbers in a sentence that is its answer."""
    if _alike(text, found):
        return found[0].number
    reason = _REASON.search(text)
    if reason and not _CONCLUSION.search(text, reason.end()):
        if reason[0].lower() == "if" and _OTHERWISE.search(text, reason.end()):
            return None
        before = [one for one in found if one.end <= reason.start()]
        if before and len(before) < len(found):
            return _chosen(text[: reason.start()], before)
    parallel = not (reason and reason.start() < 3) and not _is_chain(text, found)
    for turn in (_CONCLUSION, _EQUALS, _VERB):
        marks = list(turn.finditer(text))
        ends = [mark.end() for mark in marks if mark.end() <= found[-1].start]
        again = [mark for mark in marks[:-1] if mark[0] == marks[-1][0] and mark.end() < found[0].start]
        if turn is _VERB and parallel and again:
            break  # Anna has 5 and Ben has 6
        if ends and (turn is not _EQUALS or _is_chain(text, found)):
            found = [one for one in found if one.start >= ends[-1]]
            if _alike(text, found):
                return found[0].number
    if any(_JOINED.fullmatch(text[one.end : other.start]) for one, other in pairwise(found)):
        return None
    free = [one for one in found if not _PREPOSITION.search(text[max(0, one.start - 60) : one.start])]
    return free[0].number if _alike(text, free) else None


def _alike(text: str, found: list[Found]) -> bool:
    """Whether all are one number, and no computation that is left open, such as 5 + 5."""
    first = found[0].number if found else None
    is_open = len(found) > 1 and _OPERATOR.fullmatch(text, found[-2].end, found[-1].start + 1)
    return bool(first and not is_open and all(one.number and same(first, one.number) for one in found[1:]))


_OPERATOR = re.compile(r"\s?(?:[-+*/÷x]|plus|minus|times)\s?[-$€\d.]?")


def _is_chain(text: str, found: list[Found]) -> bool:
    """Whether a sentence is one computation: no "or", "and", comma or semicolon stands between its equations."""
    first, last = found[0].end, found[-1].start
    return re.search(r"\b(?:or|and|oder|und|ou|et)\b|[,;]\s", text[first:last]) is None
