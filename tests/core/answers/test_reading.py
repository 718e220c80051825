"""What a person reads in an answer, and what shoal reads in it."""

from __future__ import annotations

import time
from importlib.util import find_spec

import pytest
from forms import FOURTH, MISREAD, SECOND, THIRD, rows
from hypothesis import given
from hypothesis import strategies as st

from shoal.answers import kind_of, score
from shoal.answers.choice import choice
from shoal.answers.mathematics import equal, load_math
from shoal.answers.number import number

NUMBERS: list[tuple[str, str | None]] = [
    ("-$4", "-4"),
    ("$4", "4"),
    ("$-4", "-4"),
    ("$-$5", "-5"),
    ("-€7", "-7"),
    ("–3", "-3"),
    ("- 3", "-3"),
    ("7{,}500", "7500"),
    ("$7\\,500$", "7500"),
    ("7\u202f500", "7500"),
    ("4,00,000", "400000"),
    ("3e5", "300000"),
    ("1.5e3", "1500"),
    ("４２", "42"),
    ("1,200", "1200"),
    ("($1,200)", "-1200"),
    ("(4)", "4"),
    ("$(5)", "-5"),
    ("5 or 6", None),
    ("3,5", None),
    ("12 + 7 = 19", "19"),
    ("x = 3 or x = 5", None),
    ("So she has 14 apples left after giving 3 to Bob.", "14"),
    ("50%", "50 %"),
    ("50 percent", "50 %"),
    ("½", "0.5"),
    ("1 1/2", "1.5"),
    ("2½", "2.5"),
    ("\\frac{1}{2}", "0.5"),
    ("-\\frac{3}{4}", "-0.75"),
    ("2\\frac{1}{3}", "7/3"),
    ("3 x 10^5", "300000"),
    ("10^5", "100000"),
    ("3 \\times 10^{-2}", "0.03"),
    ("5 m^2", "5"),
    ("5 km", "5"),
    ("3.14.", "3.14"),
    ("1.234,56", None),
    ("١٢٣", "123"),
    ("٣٫٥", "3.5"),
    ("1/2/2020", None),
    ("7 500", "7500"),
    ("1'234'567", "1234567"),
    ("minus 3", "-3"),
    ("3 million", "3 * 1000000"),
    ("$3.5 million", "3.5 * 1000000"),
    ("between 3 and 5", None),
    ("12 out of 15", "12"),
    ("3-5", None),
    ("10 - 3 = 7", "7"),
    ("0", "0"),
    ("-0", "0"),
    ("+5", "5"),
    ("5-", "5"),
    ("5!", "5"),
    ("1.", "1"),
    ("the 3rd of 5 is 7", "7"),
    ("-1,234.5", "-1234.5"),
    ("1e999", None),
    ("x^2", None),
    ("2x", "2"),
    ("H2O", None),
    ("not 5 but 6", "6"),
    ("it's 3:45", None),
    ("7.", "7"),
    ("'8'", "8"),
    ("1,234,567.89", "1234567.89"),
    ("=5", "5"),
    ("(−5)", "-5"),
    ("−5°C", "-5"),
    ("It costs $5.00 each, $10 total", None),
    ("First 3*4 = 12, then 12 + 2 = 14", "14"),
    ("10¹²", "1000000000000"),
    ("**12**", "12"),
    ("__12__", "12"),
    ("*12*", "12"),
    ("3*4", None),
]
"""What is said, and the number in it; None: it names none, or two without saying which."""
COMMAS = [("3,5", "3.5"), ("1.234,56", "1234.56"), ("1.234", "1234"), ("-0,5", "-0.5"), ("3.5", "3.5")]
UNITS = [
    ("50%", "0.5", 1),
    ("50%", "50", 1),
    ("50", "50 %", 1),
    ("0.5", "50%", 1),
    ("0.5%", "50%", 0),
    ("3", "3 million", 1),
]
"""A right answer, what is said, the score."""
OPTIONS = {"A": "Paris", "B": "Rome", "C": "the Louvre", "D": "14"}
CHOICES = [
    ("A or B", ""),
    ("Both A and C", ""),
    ("A, B", ""),
    ("The answer is A or B.", ""),
    ("(A) and (B)", ""),
    ("Paris", "A"),
    ("The answer is Rome.", "B"),
    ("rome", "B"),
    ("<answer>B</answer>", "B"),
    ("<answer>b) Rome</answer>", "B"),
    ("<answer></answer>", ""),
    ("Option B", "B"),
    ("option b", "B"),
    ("I think the answer is (b)", "B"),
    ("A common mistake is C, but the answer is B.", "B"),
    ("It's B", "B"),
    ("The correct option is B: Rome", "B"),
    ("Neither A nor C. B is correct", "B"),
    ("A is incorrect, B is right.", "B"),
    ("A is not correct.", ""),
    ("**B**", "B"),
    ("**B.** Rome", "B"),
    ("**Answer: B**", "B"),
    ("Answer:\nB", "B"),
    ("The best choice is option D, since ...", "D"),
    ("D", "D"),
    ("14", "D"),
    ("I would choose C", "C"),
    ("Let's think. Paris is in France. Rome is in Italy. So, B.", "B"),
    ("A dog is an animal.", ""),
    ("a", "A"),
    ("(a)", "A"),
    ("a.", "A"),
    ("The answer is a car.", ""),
    ("<think>A</think>B", "B"),
    ("<think>A</think>", ""),
    ("B</think>C", "C"),
    ("$\\text{B}$", "B"),
    ("\\boxed{\\text{B}}.", "B"),
    ("B\n\nC", ""),
    ("The answer is C. Rome", "C"),
    ("答案是B", "B"),
    ('The answer is "B" (Rome)', "B"),
    ("Answer: [B]", "B"),
    ("answer is B and not C", "B"),
    ("I am sure: B", "B"),
    ("Choice (B)", "B"),
    ("The answer is option (b) Rome", "B"),
    ("We pick answer A", "A"),
    ("B!", "B"),
    ("B?", "B"),
    ("- B", "B"),
    ("Correct answer: B) Rome", "B"),
    ("E", ""),
    ("Z", ""),
    ("The answer is: **(B) Rome**", "B"),
    ("*B*", "B"),
    ("ANSWER: B", "B"),
    ("so the final answer is B", "B"),
    ("B - because A is small", "B"),
    ("B: Rome", "B"),
    ("B because Rome", "B"),
    ("Because of X, A and B are wrong. C", "C"),
    ("C is the correct answer", "C"),
    ("The correct choice would be C", "C"),
    ("Only C", "C"),
    ("My answer would be C", "C"),
]
"""What is said, and the option that it chooses; empty: none, or two."""
DIGITS = [
    ("2", "2"),
    ("(2)", "2"),
    ("The answer is 2.", "2"),
    ("2) Rome", "2"),
    ("Option 2", "2"),
    ("3 is correct", "3"),
    ("1 or 2", ""),
    ("\\boxed{2}", "2"),
]
LETTERS = [
    ("I", "I", 1),
    ("(I)", "I", 1),
    ("J", "J", 1),
    ("I think it is A", "I", 0),
    ("I think it is A", "A", 1),
    ("The answer is I.", "I", 1),
    ("B", "B", 1),
    ("b", "B", 1),
    ("(B)", "B", 1),
    ("B.", "B", 1),
    ("B) Rome", "B", 1),
    ("The answer is B.", "B", 1),
    ("Answer: (b)", "B", 1),
    ("So the answer is \\boxed{B}", "B", 1),
    ("**B**", "B", 1),
    ("The correct answer is:\n\n**B**", "B", 1),
    ("Answer: $\\boxed{B}$", "B", 1),
    ("The answer is B, since option A is too small.", "B", 1),
    ("The best answer is (b) and not option (a).", "B", 1),
    ("I take option B.", "B", 1),
    ("Option A? No. The answer is C. Wait: the answer is B.", "B", 1),
    ("I rule out answer A. So option B is right.", "B", 1),
    ("Answer A is too small. I choose option B.", "B", 1),
    ("Answer A) 3 is wrong.\nFinal choice: B", "B", 1),
    ("Answer A is wrong, answer C too. Choice B it is.", "B", 1),
    ("Answer B", "B", 1),
    ("**Answer:** B", "B", 1),
    ("The answer is A, and not option B", "B", 0),
    ("A", "B", 0),
    ("", "B", 0),
    ("Because", "B", 0),
    ("I think so", "B", 0),
    ("The answer is a big city", "B", 0),
    ("AB", "B", 0),
    ("Answer: A or else", "B", 0),
]
"""What is said, the right letter, the score; the texts of the options are not known."""
FORMULAS = [
    ("3", "1, 2, 3", 0),
    ("3", "$1, 2, 3$", 0),
    ("1,2,3", "1, 2, 3", 1),
    ("1,2,3", "\\boxed{3,2,1}", 1),
    ("1,2,3", "\\boxed{3}", 0),
    ("3", "\\boxed{1,2,3}", 0),
    ("(1,2)", "\\boxed{(2,1)}", 0),
    ("(-\\infty,3]", "\\boxed{x \\le 3}", 1),
    ("Paris", "\\boxed{Pairs}", 0),
    ("\\text{Paris}", "The answer is Paris.", 1),
    ("3", "it is 4, or 3", 0),
    ("3", "4 or 3", 0),
    ("7", "The answer is 7.", 1),
    ("12", "<answer>12</answer>", 1),
    ("12", "<answer>\\boxed{12}</answer>", 1),
    ("2", "\\boxed{1} \\boxed{2}", 1),
    ("1,2", "\\boxed{1} and \\boxed{2}", 1),
    ("\\frac{1}{2}", "So it is $0.5$.", 1),
    ("\\frac{1}{2}", "1/2", 1),
    ("x=3", "3", 1),
    ("5", "5 cm", 1),
    ("5\\text{ cm}", "5", 1),
    ("x^2+2x+1", "(x+1)^2", 1),
    ("x^2+2x+1", "The answer is (x+1)^2.", 1),
    ("3", "<think>\\boxed{3}</think>\\boxed{4}", 0),
    ("7500", "\\boxed{7{,}500}", 1),
    ("-4", "\\boxed{-$4}", 1),
    ("[1,2)", "[1,2)", 1),
    ("[1,2)", "(1,2)", 0),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}", 1),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}2\\\\1\\end{pmatrix}", 0),
    ("\\{1,2\\}", "1, 2", 1),
    ("\\{1,2\\}", "2", 0),
    ("10%", "0.1", 1),
    ("2\\sqrt{3}", "2√3", 1),
    ("\\sqrt{2}", "sqrt(2)", 1),
    ("\\pi", "π", 1),
    ("x+1", "x + 1", 1),
    ("yes", "Yes.", 1),
    ("B", "\\boxed{\\text{(B)}}", 1),
    ("x=1,y=2", "x = 1 and y = 2", 1),
    ("(1,2)", "x=1, y=2", 1),
    ("-\\frac{3}{4}", "-3/4", 1),
    ("1.5", "1 1/2", 1),
    ("\\frac{3}{2}", "1\\frac{1}{2}", 1),
    ("90^\\circ", "90°", 1),
    ("3", "x = 3", 1),
    ("3", "x=3 or x=5", 0),
    ("2^{10}", "1024", 1),
    ("1024", "2^10", 1),
    ("\\log 2", "log 2", 1),
    ("e^x", "e^{x}", 1),
    ("3\\times 10^5", "300000", 1),
    ("300000", "3 \\times 10^5", 1),
    ("(3,-2)", "(3, -2)", 1),
    ("True", "true", 1),
    ("1", "one", 1),
    ("14", "So she has 14 apples left after giving 3 away.", 1),
    ("3", "So she has 14 apples left after giving 3 away.", 0),
]
"""A right answer, what is said, whether it is right."""
TEXTS = [
    ("Paris.", "Paris", 1),
    ("The answer is Paris.", "Paris", 1),
    ("paris", "Paris", 1),
    ("**Paris**", "Paris", 1),
    ("<answer>Paris</answer>", "Paris", 1),
    ("<answer>Paris</answer><answer></answer>", "Paris", 1),
    ("<think>Rome</think>Paris", "Paris", 1),
    ("Answer: Paris. It is big", "Paris", 1),
    ("\u201cParis\u201d", "Paris", 1),
    ("Paris or Rome", "Paris", 0),
    ("The answer is Rome. Not Paris", "Paris", 0),
    ("<think>Paris", "Paris", 0),
    ("", "Paris", 0),
    ("[1, 2]", "[1, 2]", 1),
]


@pytest.mark.parametrize(("said", "found"), NUMBERS)
def test_the_number_in_an_answer(said: str, found: str | None) -> None:
    assert (None if (one := number(said)) is None else str(one)) == found


@pytest.mark.parametrize(("said", "found"), COMMAS)
def test_a_decimal_comma_is_read_where_the_data_has_one(said: str, found: str) -> None:
    assert str(number(said, comma=True)) == found


@pytest.mark.parametrize(("right", "said", "wanted"), UNITS)
def test_a_percent_sign_is_a_factor_or_a_unit(right: str, said: str, wanted: float) -> None:
    assert score("number", said, right) == wanted


@pytest.mark.parametrize(("said", "label"), CHOICES)
def test_the_option_that_an_answer_chooses(said: str, label: str) -> None:
    assert choice(said, OPTIONS) == label


@pytest.mark.parametrize(("said", "label"), DIGITS)
def test_labels_may_be_digits(said: str, label: str) -> None:
    assert choice(said, "0123456789") == label


@pytest.mark.parametrize(("said", "right", "wanted"), LETTERS)
def test_the_letter_that_an_answer_chooses(said: str, right: str, wanted: float) -> None:
    assert score("choice", said, right) == wanted


@pytest.mark.parametrize(("right", "said", "wanted"), FORMULAS)
def test_equal_formulas(right: str, said: str, wanted: int) -> None:
    pytest.importorskip("math_verify")
    load_math()
    assert equal(right, said) == bool(wanted)


@pytest.mark.parametrize(("said", "right", "wanted"), TEXTS)
def test_equal_texts(said: str, right: str, wanted: float) -> None:
    assert score("text", said, right) == wanted


def test_the_case_counts_only_for_exact_texts() -> None:
    assert [score("exact", said, "Paris") for said in ("Paris", "**Paris.**", "paris")] == [1, 1, 0]


NUMERIC = ("12", "-1,250.5", "3/4", "$1,200", "-$6", "3100 cm", "10,000.50 \u20ac", "50%", "1e5", "3.")
WORDS = ("Rome", "A1", "12:30", "2020-01-02", "1 2 3", "3 pm", "1 Kings", "yes")


@pytest.mark.parametrize(
    ("right", "kind"), [*((one, "number") for one in NUMERIC), ("B", "choice"), *((one, "text") for one in WORDS)]
)
def test_which_kind_fits(right: str, kind: str) -> None:
    assert kind_of(right) == kind
    assert score(kind, right, right) == 1.0


@given(st.text(), st.text(max_size=20).filter(str.strip))
def test_any_answer_has_a_score(said: str, right: str) -> None:
    assert {score(kind, said, right) for kind in ("exact", "text", "number", "choice")} <= {0.0, 1.0}


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**12), max_value=10**12))
def test_every_number_is_read_in_every_usual_form(value: object) -> None:
    forms = (
        f"{value}",
        f"{value:,}",
        f"The answer is {value:,}.",
        f"\\boxed{{{value}}}",
        f"<answer>{value:,}</answer>",
    )
    assert [score("number", said, str(value)) for said in forms] == [1.0] * len(forms)


PIECES = [
    "1",
    "1,",
    "1 ",
    "(",
    "1,11,",
    "\\boxed{",
    "answer is ",
    "<answer>",
    "1 or ",
    "</think>",
    "<think>",
    "1/",
    "$",
]
PIECES += [
    "*",
    "{",
    "1 000",
    "A or ",
    "A is ",
    "option A ",
    "the answer is B ",
    "B",
    "I choose ",
    "\\text{",
    "\n",
    "A,",
]
PIECES += [
    "A) x B) y ",
    "\\boxed{1} and ",
    "1 because ",
    "\nQuestion: ",
    "one hundred and ",
    "1~000",
    "±3 ",
    "0.\\overline{3}",
]
PIECES += ["</s>", "9:40 ", "5 (a) ", "~~5", "step 1: ", "<", "a wrong ", "; 5 + ", "wait A "]
PIECES += ["a loss of ", "5 below ", "5 and 5 cents ", "≈ 5", ", or about 5", "3-3/4 ", "one third ", "\n> ", "1:20"]
PIECES += [" ", "answer: A) ", "- ", "1.1", "\\frac{1}{", "\\begin{cases}", "99!", "\\boxed{1}", "√", "$1$"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_text_made_to_take_long_does_not(piece: str) -> None:
    """Twice the text takes about twice the time; in quadratic time it would take four times as long."""
    maths = ["math"] if find_spec("math_verify") else []
    if maths:
        load_math()

    def seconds(size: int) -> float:
        took = []
        for begin in range(3):  # another text each time: nothing is remembered
            said = (piece * (2 + size // len(piece)))[begin : begin + size]
            begun = time.process_time()
            for kind in ("exact", "text", "number", "choice", *maths):
                score(kind, said, "B" if kind == "choice" else "7")
            took.append(time.process_time() - begun)
        return min(took)

    assert seconds(100_000) < 3 * seconds(50_000) + 0.05


HEAVY = [
    r"\frac{1}{1+" * 12 + "2" + "}" * 12,
    r"\sqrt{2+" * 12 + "2" + "}" * 12,
    "(" * 12 + "1" + ")" * 12,
    "9^{9^{9^9}}",
    "x^{x^{x^{x}}}",
    "7^{-99999999}",
    "7^{0.99999999}",
    "7^{1/99999999}",
    r"(1+10^{-9})^{9999}",
    r"(1+10^{-99})^{999}",
    r"\left(1+\frac{1}{9999}\right)^{9999}",
    r"1.5\times 10^{99999999}",
    "1e99999999",
    "(x+y+z)^{20}",
    r"(1+\sqrt{2})^{200}",
    "99999!+1",
    r"\binom{99999999}{45}",
    "+".join(f"x^{n}" for n in range(100)),
    "".join(f"(x+{n})" for n in range(20)),
    r"\{" + ",".join(map(str, range(300))) + r"\}",
    r"\begin{pmatrix}" + r"\\".join("&".join("1" * 20) for _ in range(50)) + r"\end{pmatrix}",
    r"\int_0^1 e^{x^5} dx",
    "|" * 100 + "1" + "|" * 100,
    "-" * 400 + "1",
    "99!" * 300,
]


@pytest.mark.parametrize("heavy", HEAVY)
def test_math_verify_sees_no_formula_that_takes_it_minutes(heavy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    math_verify = pytest.importorskip("math_verify")
    seen: list[str] = []
    monkeypatch.setattr(math_verify, "parse", lambda text, **_: seen.append(text))
    for said in (heavy, f"\\boxed{{{heavy}}}", f"The answer is ${heavy}$.", f"\\boxed{{{heavy}}}" * 50):
        assert score("math", said, "y+1") == 0
    assert not any(len(text) > 500 or heavy in text for text in seen)
    assert score("math", f"\\boxed{{{heavy}}}", heavy) == 1


@pytest.mark.parametrize(
    ("right", "said"),
    [
        (r"\frac{1}{1+\frac{1}{1+\frac{1}{2}}}", r"\boxed{\frac{3}{5}}"),
        ("2^{2^{3}}", r"\boxed{256}"),
        (r"\sqrt{2+\sqrt{3}}", r"\boxed{\sqrt{\sqrt{3}+2}}"),
        ("x^{10}+x^9+x^8+x^7", r"\boxed{x^7+x^8+x^9+x^{10}}"),
        ("(x+1)^3", r"\boxed{x^3+3x^2+3x+1}"),
    ],
)
def test_formulas_of_usual_size_are_compared(right: str, said: str) -> None:
    pytest.importorskip("math_verify")
    load_math()
    assert score("math", said, right) == 1
    assert score("math", right, said) == 1


@pytest.mark.parametrize("kind", ["number", "choice", "text", "exact", "math"])
def test_answers_are_read_as_a_person_reads_them(kind: str) -> None:
    if kind == "math":
        pytest.importorskip("math_verify")
        load_math()
    of_kind = [row for row in rows() if row.kind == kind]
    wrong = [row for row in of_kind if score(kind, row.said, row.right, row.options) != row.wanted]
    assert all(row.wanted and row.said in MISREAD for row in wrong), wrong


@pytest.mark.parametrize(("name", "known"), [("second", SECOND), ("third", THIRD), ("fourth", FOURTH)])
def test_further_sets_are_misread_no_more_often_than_is_known(name: str, known: tuple[int, int]) -> None:
    pytest.importorskip("math_verify")
    load_math()
    wrong = [row.wanted for row in rows(name) if score(row.kind, row.said, row.right, row.options) != row.wanted]
    assert (wrong.count(0), wrong.count(1)) == known


@given(
    st.integers(2, 999),
    st.sampled_from(["more than {}", "at least {} apples", "It is less than {}.", "{}+", "{} or more"]),
)
def test_a_bound_is_no_answer(value: int, form: str) -> None:
    assert number(form.format(value)) is None


@given(
    st.integers(2, 999),
    st.sampled_from(["<|im_end|>", "</s>", "<|eot_id|>", "<|endoftext|>Question: 7 + 8?", " (year 2020)"]),
)
def test_what_ends_or_remarks_on_an_answer_changes_nothing(value: int, mark: str) -> None:
    assert score("number", f"{value}{mark}", str(value)) == 1
    assert score("number", f"{value}{mark}", "2020") == 0


@given(st.sampled_from("ABCD"), st.sampled_from("ABCD"), st.sampled_from(["Wait, actually {}.", "Hmm, wait, it's {}."]))
def test_who_changes_his_mind_is_heard_last(first: str, then: str, form: str) -> None:
    assert choice(f"{first}. {form.format(then)}", "ABCD") == then


@given(st.integers(1, 99), st.integers(1, 99))
def test_a_decimal_in_brackets_is_not_negative(above: int, below: int) -> None:
    value = f"{above}.{below:02}5"
    assert score("number", f"({value})", value) == 1


@pytest.mark.parametrize(
    "text", ["The wrong answer is B.", "The incorrect answer is B) zoo", "The incorrect option is B"]
)
def test_what_is_called_wrong_is_not_chosen(text: str) -> None:
    assert choice(text, {"A": "school", "B": "zoo"}) != "B"
    assert choice(f"{text} The right answer is A.", {"A": "school", "B": "zoo"}) == "A"


OTHERS = [
    ("number", "8", "It may be 8 or it may be 9", None, 0),
    ("number", "9", "Perhaps 8. Perhaps 9.", None, 0),
    ("number", "9", "Perhaps 8? No, 9.", None, 1),
    ("number", "7", "7 if n is odd, otherwise 6", None, 0),
    ("number", "7", "7 if n is odd and 6 if it is even", None, 0),
    ("number", "7", "7, if I am right.", None, 1),
    ("number", "7", "six (7)", None, 0),
    ("number", "7", "7 (six)", None, 0),
    ("number", "7", "seven (7) apples", None, 1),
    ("number", "7000", "seven thousand (7,000)", None, 1),
    ("number", "7", "|-7|", None, 1),
    ("number", "-7", "|-7|", None, 0),
    ("number", "-7", "| loss | -7 |", None, 1),
    ("number", "3", "Cats: 5\nDogs: 3", None, 0),
    ("number", "8", "Cats: 5\nTotal: 8", None, 1),
    ("number", "0.75", r"\frac{-3}{-4}", None, 1),
    ("number", "12", "1\u200b2", None, 1),
    ("choice", "A", "(A) Rome", {"A": "Paris", "B": "Rome"}, 0),
    ("choice", "B", "(A) Rome", {"A": "Paris", "B": "Rome"}, 0),
    ("choice", "B", "(B) Rome", {"A": "Paris", "B": "Rome"}, 1),
    ("choice", "A", "A: Paris B: Rome", {"A": "Paris", "B": "Rome"}, 0),
    ("choice", "A", "A: 4 cm B: 5 cm", None, 0),
    ("choice", "C", "12.0", {"A": "10", "B": "11", "C": "12"}, 1),
]


@pytest.mark.parametrize(("kind", "right", "said", "options", "expected"), OTHERS)
def test_hedges_alternatives_and_contradictions_earn_nothing(
    kind: str, right: str, said: str, options: dict[str, str] | None, expected: int
) -> None:
    assert score(kind, said, right, options) == expected


def test_a_derivative_is_not_its_function() -> None:
    pytest.importorskip("math_verify")
    load_math()
    assert score("math", "$x$", "x'") == score("math", "$x'$", "x") == 0
    assert score("math", "$x'$", "x'") == score("math", "$f'(x) = 2x$", "2x") == 1


UNITS = [
    ("22000 kilograms", "22000 grams", 0),
    ("25000km", "25000 m", 0),
    ("25 m/s", "25 km/h", 0),
    ("22000 g", "22000 grams", 1),
    ("22000", "22000 grams", 1),
    ("22000 grams", "22000", 1),
    ("22 kg (22000 g)", "22 kg", 1),
    ("22 kg = 22000 g", "22000 g", 1),
    ("5 Meters.", "5 m", 1),
    ("14 apples", "14 legs", 1),
    ("$5", "5 dollars", 1),
    ("-1,200 m", "-1200 metres", 1),
]


@pytest.mark.parametrize(("said", "right", "expected"), UNITS)
def test_another_unit_is_wrong_where_the_right_answer_has_one(said: str, right: str, expected: int) -> None:
    assert score("number", said, right) == expected
