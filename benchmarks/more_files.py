"""Fifty-six more files of data, whose expected reading was written down before they were read (see `files.py`).

At the first try twelve were read otherwise: six misread, six refused or taken as they are. Then causes were mended.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from files import FOUR, HEAD, OBJECTS, ROWS, SUMS, WHICH, Case, arrow, lines, table


def book(make_book: Callable[[Any, Any], None]) -> Callable[[Path], None]:
    """A workbook by its maker."""

    def make(path: Path) -> None:
        import openpyxl

        opened = openpyxl.Workbook()
        make_book(opened, opened.active)
        opened.save(path)

    return make


def merged(book: Any, s: Any) -> None:
    s.title = "Quiz"
    s.append(["Quiz for class 5b", None])
    s.merge_cells("A1:B1")
    s.append([None, None])
    for r in ROWS:
        s.append(r)


def merged_names(book: Any, s: Any) -> None:  # names over two rows
    s.append(["Item", None, "Key"])
    s.merge_cells("A1:B1")
    s.append(["No.", "question", "answer"])
    for i, (q, a) in enumerate(SUMS.items()):
        s.append([i, q, a])


def merged_cells(book: Any, s: Any) -> None:
    s.append(["topic", "question", "answer"])
    for i, (q, a) in enumerate(SUMS.items()):
        s.append(["sums" if i == 0 else None, q, a])
    s.merge_cells("A2:A13")


def formulas(book: Any, s: Any) -> None:
    s.append(HEAD)
    for i, q in enumerate(SUMS):
        s.append([q, f"={i}+2"])


def errors(book: Any, s: Any) -> None:
    s.append(HEAD)
    for q, a in SUMS.items():
        s.append([q, a])
    s.append(["broken?", "#DIV/0!"])


def hidden(book: Any, s: Any) -> None:
    s.title = "Notes"
    s.append(["This workbook has the quiz on the second sheet"])
    q = book.create_sheet("Quiz")
    for r in ROWS:
        q.append(r)


def thousands(book: Any, s: Any) -> None:
    s.append(HEAD)
    for n in range(12):
        s.append([f"{n} thousand?", n * 1000 + 500])
        s.cell(n + 2, 2).number_format = "#,##0"


def percents(book: Any, s: Any) -> None:
    s.append(HEAD)
    for n in range(1, 12):
        s.append([f"Part {n} of 20?", n / 20])
        s.cell(n + 1, 2).number_format = "0%"


def booleans(book: Any, s: Any) -> None:
    s.append(HEAD)
    for n in range(12):
        s.append([f"Is {n} even?", n % 2 == 0])


def dates(book: Any, s: Any) -> None:
    s.append(HEAD)
    for n in range(1, 12):
        s.append([f"Day {n}?", datetime.date(2024, 3, n)])


def total(book: Any, s: Any) -> None:
    for r in ROWS:
        s.append(r)
    s.append([None, None])
    s.append(["Total", 12])


def chat(q: str, a: str) -> list[dict[str, str]]:
    """A conversation."""
    asked = [{"role": "system", "content": "Be short."}, {"role": "user", "content": q}]
    return [*asked, {"role": "assistant", "content": a}]


MORE = [
    Case("x01.xlsx", "a merged title above", book(merged), SUMS),
    Case("x02.xlsx", "names in two rows, the first merged", book(merged_names), SUMS),
    Case("x03.xlsx", "merged cells beside", book(merged_cells), SUMS),
    Case("x04.xlsx", "formulas that nothing computed", book(formulas), "save"),
    Case("x05.xlsx", "an error in a cell", book(errors), SUMS, says="left out"),
    Case("x06.xlsx", "notes first, quiz on the second sheet", book(hidden), SUMS),
    Case(
        "x07.xlsx", "thousands by format", book(thousands), {f"{n} thousand?": str(n * 1000 + 500) for n in range(12)}
    ),
    Case("x08.xlsx", "percent by format", book(percents), {f"Part {n} of 20?": f"{n / 20:g}" for n in range(1, 12)}),
    Case(
        "x09.xlsx",
        "booleans",
        book(booleans),
        {f"Is {n} even?": "true" if n % 2 == 0 else "false" for n in range(12)},
        "text",
    ),
    Case("x10.xlsx", "dates", book(dates), {f"Day {n}?": f"2024-03-{n:02}" for n in range(1, 12)}, "text"),
    Case("x11.xlsx", "a line of totals below", book(total), SUMS | {"Total": "12"}),
    Case(
        "c01.csv",
        "mixed line ends",
        (
            "question,answer\r\n"
            + "".join(f"{q},{a}" + ("\n" if i % 2 else "\r\n") for i, (q, a) in enumerate(SUMS.items()))
        ).encode(),
        SUMS,
    ),
    Case(
        "c02.csv",
        "CR in a quoted cell",
        table([HEAD, *([f"Line one\rline {n}?", n] for n in range(12))]).encode(),
        {f"Line one\rline {n}?": str(n) for n in range(12)},
    ),
    Case("c03.csv", "two marks in front", ("\ufeff\ufeff" + table(ROWS)).encode(), SUMS),
    Case(
        "c04.csv",
        "names in capitals with spaces",
        table([["Question Text", "Correct Answer"], *ROWS[1:]]).encode(),
        SUMS,
    ),
    Case("c05.csv", "names Q and A", table([["Q", "A"], *ROWS[1:]]).encode(), SUMS),
    Case(
        "c06.csv",
        "three columns id, q, a",
        table([["id", "q", "a"], *([i, *r] for i, r in enumerate(ROWS[1:]))]).encode(),
        SUMS,
    ),
    Case(
        "c07.csv",
        "answer with thousands in quotes",
        table([HEAD, *([f"{n} km in m?", f"{n},000"] for n in range(1, 12))]).encode(),
        {f"{n} km in m?": f"{n},000" for n in range(1, 12)},
    ),
    Case(
        "c08.csv",
        "answer with thousands without quotes",
        ("question,answer\n" + "".join(f"{n} km in m?,{n},000\n" for n in range(1, 12))).encode(),
        "quotes",
    ),
    Case("c09.csv", "a comment line above", ("# exported 2024-01-01\n" + table(ROWS)).encode(), SUMS),
    Case(
        "c10.csv",
        "single quotes around cells",
        ("question,answer\n" + "".join(f"'{q}','{a}'\n" for q, a in SUMS.items())).encode(),
        SUMS,
    ),
    Case(
        "c11.csv",
        "a very long cell",
        table([HEAD, *([f"{'word ' * 5000}{n}?", n] for n in range(12))]).encode(),
        {f"{'word ' * 5000}{n}?": str(n) for n in range(12)},
    ),
    Case(
        "c12.csv", "a cell that is too long", table([*ROWS, ["x" * 120000 + "?", "1"]]).encode(), SUMS, says="left out"
    ),
    Case("c13.csv", "empty answers", table([*ROWS, ["Unknown?", ""]]).encode(), SUMS, says="left out"),
    Case(
        "c14.csv",
        "NA for missing answers",
        table([*ROWS, ["Unknown?", "NA"]]).encode(),
        SUMS | {"Unknown?": "NA"},
        says="another kind",
    ),
    Case(
        "c15.csv",
        "TRUE and FALSE",
        table([HEAD, *([f"Is {n} even?", "TRUE" if n % 2 == 0 else "FALSE"] for n in range(12))]).encode(),
        {f"Is {n} even?": "TRUE" if n % 2 == 0 else "FALSE" for n in range(12)},
        "text",
    ),
    Case(
        "c16.csv",
        "formulas of a spreadsheet as text",
        table([HEAD, *([q, f"={int(a) - 2}+2"] for q, a in SUMS.items())]).encode(),
        "formula",
    ),
    Case(
        "c17.csv",
        'numbers kept as text by =""',
        ("question,answer\n" + "".join(f'{q},"=""{a}"""\n' for q, a in SUMS.items())).encode(),
        SUMS,
    ),
    Case(
        "c18.csv",
        "correct_answer and wrong answers",
        table(
            [["question", "correct_answer", "incorrect_1", "incorrect_2"], *([q, a, "0", "1"] for q, a in SUMS.items())]
        ).encode(),
        SUMS,
    ),
    Case(
        "c19.tsv",
        "tabs with quotes inside",
        ("question\tanswer\n" + "".join(f'Say "{n}"?\t{n}\n' for n in range(12))).encode(),
        {f'Say "{n}"?': str(n) for n in range(12)},
    ),
    Case(
        "c20.csv",
        "NUL bytes in it",
        ("question,answer\n" + "".join(f"{q}\0,{a}\n" for q, a in SUMS.items())).encode(),
        SUMS,
    ),
    Case("j01.json", "nested under data.train", json.dumps({"data": {"train": OBJECTS}}).encode(), SUMS),
    Case(
        "j02.jsonl",
        "chats under conversation.messages",
        lines(*({"conversation": {"messages": chat(q, a)}} for q, a in SUMS.items())),
        SUMS,
    ),
    Case(
        "j03.jsonl",
        "messages, answer in a column",
        lines(*({"messages": chat(q, "thinking... " + a)[:2], "answer": a} for q, a in SUMS.items())),
        SUMS,
    ),
    Case(
        "j04.jsonl",
        "answer as an object with value",
        lines(*({"question": q, "answer": {"value": a, "unit": ""}} for q, a in SUMS.items())),
        SUMS,
    ),
    Case(
        "j05.jsonl",
        "answer as a list of one number",
        lines(*({"question": q, "answer": [int(a)]} for q, a in SUMS.items())),
        SUMS,
    ),
    Case(
        "j06.jsonl",
        "numbers as text with spaces",
        lines(*({"question": q, "answer": f" {a} "} for q, a in SUMS.items())),
        SUMS,
    ),
    Case(
        "j07.jsonl",
        "booleans",
        lines(*({"question": f"Is {n} even?", "answer": n % 2 == 0} for n in range(12))),
        {f"Is {n} even?": "true" if n % 2 == 0 else "false" for n in range(12)},
        "text",
    ),
    Case(
        "j08.jsonl",
        "NaN",
        b"".join(json.dumps({"question": q, "answer": a}).encode() + b"\n" for q, a in SUMS.items())
        + b'{"question": "x?", "answer": NaN}\n',
        SUMS,
        says="left out",
    ),
    Case("j09.jsonl", "names with capitals", lines(*({"Question": q, "Answer": a} for q, a in SUMS.items())), SUMS),
    Case(
        "j10.jsonl",
        "input, output and an empty instruction",
        lines(*({"instruction": "", "input": q, "output": a} for q, a in SUMS.items())),
        SUMS,
    ),
    Case("j11.json", "a truncated array", json.dumps(OBJECTS).encode()[:-20], "JSON"),
    Case("j12.jsonl", "a truncated last line", lines(*OBJECTS)[:-10], dict(list(SUMS.items())[:-1]), says="left out"),
    Case(
        "p01.parquet",
        "decimals",
        arrow(question=list(SUMS), answer=[Decimal(a + ".00") for a in SUMS.values()]),
        {asked: f"{right}.00" for asked, right in SUMS.items()},
    ),
    Case(
        "p02.parquet",
        "categories",
        lambda path: (
            __import__("pandas")
            .DataFrame({"question": list(SUMS), "answer": list(SUMS.values())})
            .astype({"answer": "category"})
            .to_parquet(path)
        ),
        SUMS,
    ),
    Case(
        "p03.parquet",
        "an index of pandas",
        lambda path: (
            __import__("pandas")
            .DataFrame({"question": list(SUMS), "answer": list(SUMS.values())}, index=list("abcdefghijkl"))
            .to_parquet(path)
        ),
        SUMS,
    ),
    Case(
        "p04.parquet",
        "nullable whole numbers as floats",
        arrow(question=[*SUMS, "x?"], answer=[float(a) for a in SUMS.values()] + [None]),
        SUMS,
        says="left out",
    ),
    Case(
        "t01.txt",
        "a Markdown table with bars at both ends",
        ("| question | answer |\n|---|---|\n" + "".join(f"| {q} | {a} |\n" for q, a in SUMS.items())).encode(),
        SUMS,
    ),
    Case(
        "t02.md",
        "a Markdown table, called .md",
        ("| question | answer |\n|---|---|\n" + "".join(f"| {q} | {a} |\n" for q, a in SUMS.items())).encode(),
        "end with",
    ),
    Case("t03.txt", "lines Q: and A:", ("".join(f"Q: {q}\nA: {a}\n\n" for q, a in SUMS.items())).encode(), "column"),
    Case("t04.txt", "questions alone, a line each", ("".join(f"{q}\n" for q in SUMS)).encode(), "column"),
    Case(
        "z01.zip",
        "a zip",
        lambda path: __import__("zipfile").ZipFile(path, "w").writestr("a.csv", table(ROWS)),
        "unzip",
    ),
    Case("h01.csv", "a web page", b"<!DOCTYPE html><html><body>Sign in</body></html>", "web page"),
    Case(
        "k01.csv",
        "options in columns A to D, key in lower case",
        table(
            [["question", "A", "B", "C", "D", "answer"], *([f"Which is red? ({n})", *FOUR, "b"] for n in range(12))]
        ).encode(),
        {f"Which is red? ({n})" + WHICH[13:]: "B" for n in range(12)},
        "choice",
    ),
    Case(
        "k02.csv",
        "options in columns, key as text",
        table(
            [["question", "A", "B", "C", "D", "answer"], *([f"Which is red? ({n})", *FOUR, "rose"] for n in range(12))]
        ).encode(),
        {f"Which is red? ({n})" + WHICH[13:]: "B" for n in range(12)},
        "choice",
    ),
    Case(
        "k03.csv",
        "options in one cell by bars",
        table(
            [
                ["question", "options", "answer"],
                *([f"Which is red? ({n})", "sky|rose|leaf|snow", "B"] for n in range(12)),
            ]
        ).encode(),
        "JSON",
    ),
]
