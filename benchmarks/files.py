"""Files of data as people have them: what shoal reads each as. Writes benchmarks/tables/files.md.

python benchmarks/files.py            # writes the page; exit code 1 if one is read otherwise than a person would
python benchmarks/files.py excel      # prints those with "excel" in their names or descriptions

All files are written into a temporary folder. A file is right if its questions, right answers, kind of scoring and
held-out rows are those that a person expects, or if it is refused with the words that a person needs.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

PAGE: Final = Path(__file__).parent / "tables" / "files.md"
PREFACE: Final = """# Files of data

What `python benchmarks/files.py` writes: {} files as people have them, as
[shoal reads](../../docs/guides/data.md) them.
A file is right if its questions, right answers, scoring and held-out rows are those that a person expects, or if it is
refused with what to do. {} are.

| file | what it is | read as |
|---|---|---|
"""
Make = bytes | Callable[[Path], object]


class Case(NamedTuple):
    """A file."""

    name: str
    what: str
    make: Make
    expected: Mapping[str, str | list[str]] | str
    """Right answers by questions; or words of the error by which it is refused."""
    kind: str = "number"
    held_out: int = 0
    says: str = ""
    """What the description has to say, such as a row that is left out."""
    options: Mapping[str, str] = {}


# How they are written


def table(
    rows: Sequence[Sequence[Any]], separator: str = ",", end: str = "\r\n", quote: int = csv.QUOTE_MINIMAL
) -> str:
    """CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator=end, quoting=quote).writerows(rows)  # type: ignore[arg-type]
    return text.getvalue()


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def sheets(**contents: Sequence[Sequence[Any]]) -> Callable[[Path], None]:
    """A workbook."""

    def make(path: Path) -> None:
        import openpyxl

        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in contents.items():
            sheet = book.create_sheet(name)
            for number, row in enumerate(rows, 1):
                for place, value in enumerate(row, 1):
                    cell, (shown, form) = sheet.cell(number, place), value if isinstance(value, tuple) else (value, "")
                    cell.value = shown
                    cell.number_format = form or cell.number_format
        book.save(path)

    return make


def arrow(kind: str = "parquet", **columns: Any) -> Callable[[Path], None]:
    """A table of Arrow. `columns`: values, or values and their type."""

    def make(path: Path) -> None:
        import pyarrow
        import pyarrow.feather
        import pyarrow.ipc
        import pyarrow.parquet

        made = {name: pyarrow.array(*one) if isinstance(one, tuple) else one for name, one in columns.items()}
        found = pyarrow.table(made)
        if kind == "parquet":
            pyarrow.parquet.write_table(found, path)
        else:
            opened = pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file
            with opened(str(path), found.schema) as file:
                file.write_table(found)

    return make


def packed(how: str, data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        import pyarrow

        with pyarrow.CompressedOutputStream(str(path), how) as file:
            file.write(data)

    return make


def folder(**files: Make) -> Callable[[Path], None]:
    """A folder. Names of files have __ for a point and ___ for a slash."""

    def make(path: Path) -> None:
        for name, content in files.items():
            write(path / name.replace("___", "/").replace("__", "."), content)

    return make


def saved(*splits: str) -> Callable[[Path], None]:
    """What `save_to_disk` of datasets writes."""

    def make(path: Path) -> None:
        import datasets

        rows = datasets.Dataset.from_dict({"question": list(SUMS), "answer": list(SUMS.values())})
        (datasets.DatasetDict(dict.fromkeys(splits, rows)) if splits else rows).save_to_disk(path)

    return make


def write(path: Path, content: Make) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)


# What they have

HEAD: Final = ["question", "answer"]
SUMS: Final = {f"What is {n} + 2?": str(n + 2) for n in range(12)}
ROWS: Final = [HEAD, *([asked, right] for asked, right in SUMS.items())]
GERMAN: Final = {f"Wie viel ist {n} plus 2, größer als {n}?": str(n + 2) for n in range(12)}
GERMANS: Final = [HEAD, *([asked, right] for asked, right in GERMAN.items())]
HALVES: Final = {f"Half of {n}?": f"{n // 2},5" for n in range(1, 25, 2)}
OBJECTS: Final = [{"question": asked, "answer": right} for asked, right in SUMS.items()]
WHICH: Final = "Which is red?\nA) sky\nB) rose\nC) leaf\nD) snow"
FOUR: Final = ["sky", "rose", "leaf", "snow"]


def one(name: str, what: str, row: Any, asked: str, right: str | list[str], kind: str = "number", **more: Any) -> Case:
    """A file of JSON lines in a form: twelve rows that differ by a number at the end of each."""
    text = json.dumps(row)
    rows = [json.loads(text.replace("red?", f"red? ({n})").replace("1+1?", f"1+1? ({n})")) for n in range(12)]
    expected = {asked.replace("red?", f"red? ({n})").replace("1+1?", f"1+1? ({n})"): right for n in range(12)}
    return Case(f"{name}.jsonl", what, lines(*rows), expected, kind, **more)


def odd(name: str, what: str, right: Any, says: str, left_out: bool = False) -> Case:
    """Twelve sums and a row with another right answer."""
    expected = SUMS if left_out else {**SUMS, "Odd?": str(right)}
    return Case(name, what, lines(*OBJECTS, {"question": "Odd?", "answer": right}), expected, says=says)


def cases() -> list[Case]:
    """All files."""
    comma = table(GERMANS)
    spread = [
        Case("excel-de.csv", "Excel, CSV UTF-8, semicolons", ("\ufeff" + table(GERMANS, ";")).encode(), GERMAN),
        Case("excel-ansi.csv", "Excel, CSV, Western Europe", comma.encode("cp1252"), GERMAN),
        Case("excel-de-ansi.csv", "the same with semicolons", table(GERMANS, ";").encode("cp1252"), GERMAN),
        Case("excel-unicode.txt", "Excel, Unicode text", table(GERMANS, "\t").encode("utf-16"), GERMAN),
        Case("big-endian.csv", "UTF-16 BE with its mark", ("\ufeff" + comma).encode("utf-16-be"), GERMAN),
        Case("no-mark-le.csv", "UTF-16 LE without a mark", comma.encode("utf-16-le"), GERMAN),
        Case("no-mark-be.csv", "UTF-16 BE without a mark", comma.encode("utf-16-be"), GERMAN),
        Case("mac.csv", "Excel for Mac: Mac Roman, CR", table(GERMANS, end="\r").encode("mac_roman"), GERMAN),
        Case("sep.csv", "a first line sep=;", b"sep=;\r\n" + table(GERMANS, ";").encode(), GERMAN),
        Case("sep-mark.csv", "the same behind a mark", ("\ufeffsep=|\r\n" + table(GERMANS, "|")).encode(), GERMAN),
        Case(
            "again.csv", "two files, one behind the other", (table(ROWS[:5]) + table([HEAD, *ROWS[5:]])).encode(), SUMS
        ),
        Case("markdown.csv", "a table in Markdown", table([HEAD, ["---"] * 2, *ROWS[1:]], "|").encode(), SUMS),
        Case(
            "prices.csv",
            "prices with decimal commas",
            "Frage;Antwort\nWas kostet A?;€5\nWas kostet B?;€7,50\n".encode("cp1252"),
            {"Was kostet A?": "€5", "Was kostet B?": "€7,50"},
            says="decimal comma",
        ),
        Case(
            "times.xlsx",
            "times",
            sheets(
                Sheet1=[HEAD, ["When?", (datetime.time(10, 30), "hh:mm")], ["And now?", (datetime.time(9, 5), "hh:mm")]]
            ),
            {"When?": "10:30", "And now?": "09:05"},
            kind="text",
        ),
        Case(
            "days.parquet",
            "days, as times",
            arrow(
                question=["When?", "And now?"], answer=[datetime.datetime(2024, 1, 1), datetime.datetime(2024, 5, 1)]
            ),
            {"When?": "2024-01-01", "And now?": "2024-05-01"},
            kind="text",
        ),
        Case(
            "long.jsonl",
            "more decimals than 64 bits have",
            b'{"question": "a?", "answer": 123456789.123456789}\n{"question": "b?", "answer": 0.30000000000000004}\n',
            {"a?": "123456789.123456789", "b?": "0.3"},
        ),
        Case(
            "mgsm.jsonl",
            "MGSM: steps, and the number in a column",
            lines(*({"question": f"{n} + 1?", "answer": f"That is {n + 1}.", "answer_number": n + 1} for n in (3, 5))),
            {"3 + 1?": "4", "5 + 1?": "6"},
        ),
        Case("bars.csv", "separated by bars", table(ROWS, "|").encode(), SUMS),
        Case("tabs.csv", "tabs, called .csv", table(ROWS, "\t").encode(), SUMS),
        Case(
            "newlines.csv",
            "line breaks and doubled quotation marks in cells",
            table([HEAD, *([f'He says "{n}",\nshe\nadds 1?', n + 1] for n in range(12))]).encode(),
            {f'He says "{n}",\nshe\nadds 1?': str(n + 1) for n in range(12)},
        ),
        Case(
            "spaces.csv",
            "spaces behind commas",
            "\n".join(", ".join(f'"{cell}"' for cell in row) for row in GERMANS).encode(),
            GERMAN,
        ),
        Case(
            "spaces-plain.csv",
            "the same, names without marks",
            ("question, answer\n" + "\n".join(f"{a}, {b}" for a, b in SUMS.items())).encode(),
            SUMS,
        ),
        Case(
            "empty-columns.csv",
            "empty columns and rows at the end",
            table([[*row, "", ""] for row in ROWS] + [["", "", "", ""]] * 20).encode(),
            SUMS,
        ),
        Case(
            "excel-short.csv",
            "Excel leaves out separators of empty cells at the end",
            ("question,answer,remark\n" + "\n".join(f"{a},{b}" for a, b in SUMS.items())).encode(),
            SUMS,
        ),
        Case(
            "pandas.csv",
            "pandas' to_csv, with its index",
            table([["", *HEAD], *([n, *row] for n, row in enumerate(ROWS[1:]))]).encode(),
            SUMS,
        ),
        Case(
            "pandas-unknown.csv",
            "the same, other names",
            table([["", "item", "key"], *([n, *row] for n, row in enumerate(ROWS[1:]))]).encode(),
            SUMS,
        ),
        Case("blank.csv", "empty lines", ("\n" + table(ROWS, end="\n\n")).encode(), SUMS),
        Case("title.csv", "a title above the names", ('"Test, class 5b",\n,\n' + table(ROWS)).encode(), SUMS),
        Case(
            "title-de.csv", "the same with semicolons", ("Klasse 5b;\r\n;\r\n" + table(GERMANS, ";")).encode(), GERMAN
        ),
        Case(
            "decimal-comma.csv",
            "decimal commas between semicolons",
            table([HEAD, *HALVES.items()], ";").encode(),
            HALVES,
            says="decimal comma",
        ),
        Case(
            "decimal-comma.txt",
            "Excel, Unicode text with decimal commas",
            table([HEAD, *HALVES.items()], "\t").encode("utf-16"),
            HALVES,
            says="decimal comma",
        ),
        Case(
            "decimal-quoted.csv",
            "decimal commas between commas, with the word",
            table([HEAD, *HALVES.items()]).encode(),
            HALVES,
            says="decimal comma",
            options={"decimal": "comma"},
        ),
        Case(
            "thousands.txt",
            "Excel, Unicode text, thousands",
            table([HEAD, *((f"{n} km in m?", f"{n},000") for n in range(1, 13))], "\t").encode("utf-16"),
            {f"{n} km in m?": f"{n},000" for n in range(1, 13)},
        ),
        Case(
            "percent.csv",
            "percent",
            table([HEAD, *((f"{n} of 10?", f"{n}0%") for n in range(1, 13))]).encode(),
            {f"{n} of 10?": f"{n}0%" for n in range(1, 13)},
        ),
        Case(
            "codes.csv",
            "codes with leading zeros",
            table([HEAD, *((f"Code of {n}?", f"00{n}") for n in range(12))]).encode(),
            {f"Code of {n}?": f"00{n}" for n in range(12)},
        ),
        Case(
            "dates.csv",
            "dates",
            table([HEAD, *((f"Day {n}?", f"2024-01-{n + 1:02}") for n in range(12))]).encode(),
            {f"Day {n}?": f"2024-01-{n + 1:02}" for n in range(12)},
            "text",
        ),
        Case(
            "truth.csv",
            "truth values of a German Excel",
            table([HEAD, *((f"Is {n} even?", "FALSCH" if n % 2 else "WAHR") for n in range(12))], ";").encode(),
            {f"Is {n} even?": "FALSCH" if n % 2 else "WAHR" for n in range(12)},
            "text",
        ),
        Case(
            "names.csv",
            "names in capitals, with spaces",
            table([["ID ", " QUESTION", "Correct Answer"], *([n, *row] for n, row in enumerate(ROWS[1:]))]).encode(),
            SUMS,
        ),
        Case("german-names.csv", "German names", table([["Frage", "Antwort"], *ROWS[1:]], ";").encode(), SUMS),
        Case("headless.csv", "no line of names", table(ROWS[1:]).encode(), SUMS),
        Case(
            "two-answers.csv",
            "a name twice",
            table([["question", "answer", "answer"], ["a?", 1, "x"]]).encode(),
            "2 columns",
        ),
        Case(
            "two-cases.csv",
            "names that differ by case only",
            table([["question", "Answer", "answer"], ["a?", "x", 1], ["b?", "x", 2]]).encode(),
            "answer=COLUMN",
        ),
        Case(
            "unquoted.csv",
            "a row with a comma too many",
            (table(ROWS) + "Which, of all?,5\r\n").encode(),
            SUMS,
            says="row 14 of unquoted.csv has 3 fields",
        ),
        Case(
            "half-quoted.csv",
            "a row with text behind a quotation mark",
            (table(ROWS) + '"Two" or three?,2\r\n' + "Last?,7\r\n").encode(),
            {**SUMS, "Last?": "7"},
            says="row 14 of half-quoted.csv",
        ),
        Case(
            "unclosed.csv",
            "a quotation mark without its second",
            (table(ROWS) + '"Open?,2\r\n' + table(ROWS)).encode(),
            "row 14",
        ),
        Case(
            "russian.csv",
            "Excel in Russia: cp1251",
            table([HEAD, ["Сколько будет два плюс два?", "4"]]).encode("cp1251"),
            "UTF-8",
        ),
        Case(
            "japanese.csv",
            "Excel in Japan: cp932",
            table([HEAD, ["二足す二はいくつですか", "4"]]).encode("cp932"),
            "UTF-8",
        ),
        Case("mojibake.csv", "a byte that is none of cp1252", b"question,answer\r\na\x81\xff?,4\r\n", "UTF-8"),
        Case(
            "page.csv",
            "a web page, called .csv",
            b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n",
            "a web page",
        ),
        Case("empty.csv", "nothing", b"", "no rows"),
        Case("names-only.csv", "names only", b"question,answer\r\n", "no rows"),
        Case(
            "missing.csv",
            "a row without an answer",
            (table(ROWS) + "Odd?,\r\n").encode(),
            SUMS,
            says="row 14 of missing.csv has no 'answer'",
        ),
        Case(
            "lists.csv",
            "options as pandas writes lists",
            table(
                [["question", "choices", "answer"]] + [[f"Which is red? ({n})", FOUR, 1] for n in range(12)]
            ).encode(),
            "list",
        ),
        Case(
            "json-lists.csv",
            "options as JSON in a cell",
            table(
                [["question", "choices", "answer"]] + [[f"Which is red? ({n})", json.dumps(FOUR), 1] for n in range(12)]
            ).encode(),
            {WHICH.replace("red?", f"red? ({n})"): "B" for n in range(12)},
            "choice",
        ),
        Case(
            "options.csv",
            "a column for each option",
            table(
                [["question", *"ABCD", "answer"]] + [[f"Which is red? ({n})", *FOUR, "B"] for n in range(12)]
            ).encode(),
            {WHICH.replace("red?", f"red? ({n})"): "B" for n in range(12)},
            "choice",
        ),
    ]
    sheet = [
        Case(
            "book.xlsx",
            "numbers, which Excel stores with decimals",
            sheets(Quiz=[HEAD, *([a, int(b)] for a, b in SUMS.items())]),
            SUMS,
        ),
        Case(
            "notes.xlsx",
            "a sheet of notes first",
            sheets(Notes=[["These are", "our rules"], ["Be", "nice"]], Quiz=ROWS),
            SUMS,
        ),
        Case(
            "titled.xlsx",
            "a title, an empty row and an empty column",
            sheets(Quiz=[["Test 5b"], [], *([None, *row] for row in ROWS)]),
            SUMS,
        ),
        Case(
            "formats.xlsx",
            "formats: percent, sums with errors of 1e-17",
            sheets(Quiz=[HEAD, ["Half?", (0.5, "0%")], ["Sum?", 0.1 + 0.2], ["Price?", (12.5, '#,##0.00 "€"')]]),
            {"Half?": "0.5", "Sum?": "0.3", "Price?": "12.5"},
        ),
        Case(
            "formulas.xlsx",
            "formulas that no program has computed",
            sheets(Quiz=[HEAD, *([a, f"={b}+0"] for a, b in SUMS.items())]),
            "formulas without saved values",
        ),
        Case(
            "splits.xlsx",
            "sheets train and test",
            sheets(train=ROWS, test=[HEAD, ["Last?", 7]]),
            {**SUMS, "Last?": "7"},
            held_out=1,
        ),
        Case(
            "truth.xlsx",
            "truth values",
            sheets(Quiz=[HEAD, *([f"Is {n} even?", n % 2 == 0] for n in range(12))]),
            {f"Is {n} even?": "false" if n % 2 else "true" for n in range(12)},
            "text",
        ),
        Case("old.xls", "tabs, called .xls", table(ROWS, "\t").encode(), SUMS),
        Case("renamed.csv", "a workbook, called .csv", sheets(Quiz=ROWS), SUMS),
    ]
    array, text = json.dumps(OBJECTS).encode(), lines(*OBJECTS)
    columns = {"question": list(SUMS), "answer": list(SUMS.values())}
    jsons = [
        Case("array.json", "an array", array, SUMS),
        Case("pretty.json", "an array, indented", json.dumps(OBJECTS, indent=2).encode(), SUMS),
        Case("lines.json", "a row on each line, called .json", text, SUMS),
        Case("array.jsonl", "an array, called .jsonl", json.dumps(OBJECTS, indent=1).encode(), SUMS),
        Case(
            "objects.jsonl",
            "indented objects, one after the other",
            "\n".join(json.dumps(o, indent=1) for o in OBJECTS).encode(),
            SUMS,
        ),
        Case("commas.jsonl", "a comma behind each line", text.replace(b"}\n", b"},\n"), SUMS),
        Case("blank.jsonl", "empty lines, CRLF, a mark", b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n\r\n"), SUMS),
        Case("wide.jsonl", "UTF-16, as PowerShell writes it", text.decode().encode("utf-16"), SUMS),
        Case("comma.json", "a comma behind the last row", array[:-1] + b",\n]", SUMS),
        Case("data.json", 'rows under "data"', json.dumps({"version": 1, "data": OBJECTS}).encode(), SUMS),
        Case(
            "splits.json",
            "rows under train and test",
            json.dumps({"train": OBJECTS, "test": OBJECTS[:3]}).encode(),
            SUMS,
            held_out=3,
        ),
        Case("columns.json", "a list for each column", json.dumps(columns).encode(), SUMS),
        Case(
            "pandas.json",
            "pandas' to_json: an object for each column",
            json.dumps({name: {str(n): one for n, one in enumerate(all)} for name, all in columns.items()}).encode(),
            SUMS,
        ),
        Case(
            "by-id.json", "an object by ids", json.dumps({f"q{n}": row for n, row in enumerate(OBJECTS)}).encode(), SUMS
        ),
        Case("text.csv", "JSON lines, called .csv", text, SUMS),
        Case("packed.jsonl.gz", "gzip", gzip.compress(text), SUMS),
        Case("packed.csv.zst", "Zstandard", packed("zstd", table(ROWS).encode()), SUMS),
        Case("secret.jsonl", "gzip without its ending", gzip.compress(text), SUMS),
        Case(
            "broken.jsonl",
            "a line that is cut",
            text + b'{"question": "Od\n' + lines({"question": "Last?", "answer": 7}),
            {**SUMS, "Last?": "7"},
            says="row 13 of broken.jsonl is not JSON",
        ),
        Case(
            "twice.jsonl", "a name twice in an object", b'{"question": "a?", "answer": 1, "answer": "x"}\n' * 3, "twice"
        ),
        Case("python.jsonl", "Python's marks, no JSON", b"{'question': 'a?', 'answer': 1}\n", "not JSON"),
        odd("nan.jsonl", "NaN where a number lacks", float("nan"), "row 13 of nan.jsonl", True),
        odd("none.jsonl", "null where a number lacks", None, "row 13 of none.jsonl has no 'answer'", True),
        odd("surrogate.jsonl", "half a character", "\ud800", "row 13 of surrogate.jsonl", True),
        odd("huge.jsonl", "a cell of 2 MB", "x" * 2_000_000, "row 13 of huge.jsonl", True),
        odd("unit.jsonl", "one number with its unit", "3100 cm", "row 13 of unit.jsonl: '3100 cm'"),
        odd("na.jsonl", "N/A among numbers", "N/A", "row 13 of na.jsonl: 'N/A'"),
        Case(
            "letters.jsonl",
            "a digit among letters",
            lines(
                *({"question": f"Which? ({n})", "answer": "ABCD"[n % 4]} for n in range(12)),
                {"question": "Odd?", "answer": "2"},
            ),
            {**{f"Which? ({n})": "ABCD"[n % 4] for n in range(12)}, "Odd?": "2"},
            "choice",
            says="row 13 of letters.jsonl: '2'",
        ),
        Case("double.jsonl", "a row twice", lines(*OBJECTS, OBJECTS[0]), SUMS),
        Case(
            "contradiction.jsonl",
            "two right answers to one question",
            lines(*OBJECTS, {"question": "What is 3 + 2?", "answer": "6"}),
            {asked: right for asked, right in SUMS.items() if asked != "What is 3 + 2?"},
            says="rows 4, 13 ask the same",
        ),
        Case(
            "same-number.jsonl",
            "the same right answer, 2 and 2.0",
            lines(
                *OBJECTS, {"question": "What is 0 + 2?", "answer": 2.0}, {"question": "What is 1 + 2?", "answer": 3.0}
            ),
            SUMS,
        ),
    ]
    import pyarrow

    tenths = {f"{n} tenths?": str(n / 10).removesuffix(".0") for n in range(1, 31)}
    asked, numbers = list(tenths), [n / 10 for n in range(1, 31)]
    structs = [{"ground_truth": n, "style": "rule"} for n in numbers]
    kinds: list[tuple[str, str, Any]] = [
        ("single", "32-bit numbers", (numbers, pyarrow.float32())),
        ("double", "64-bit numbers", numbers),
        ("dictionary", "a dictionary of texts", pyarrow.array(list(tenths.values())).dictionary_encode()),
        ("large", "large texts", (list(tenths.values()), pyarrow.large_string())),
        ("list", "lists of 32-bit numbers", ([[n] for n in numbers], pyarrow.list_(pyarrow.float32()))),
        ("rounded", "32-bit numbers in 64 bits", (pyarrow.array(numbers, pyarrow.float32()).cast(pyarrow.float64()))),
    ]
    half = pyarrow.array([0.1, 0.5, 2.2]).cast(pyarrow.float16())
    struct = pyarrow.struct({"ground_truth": pyarrow.float32(), "style": pyarrow.string()})
    vectors = pyarrow.array([[0.1] * 384] * 30, pyarrow.list_(pyarrow.float32(), 384))
    tables = [Case(f"{n}.parquet", what, arrow(question=asked, answer=one), tenths) for n, what, one in kinds] + [
        Case(
            "decimal.parquet",
            "decimals",
            arrow(question=asked, answer=[Decimal(n) / 10 for n in range(1, 31)]),
            {one: str(n / 10) for n, one in enumerate(asked, 1)},
        ),
        Case(
            "half.parquet",
            "16-bit numbers",
            arrow(question=["a?", "b?", "c?"], answer=half),
            {"a?": "0.1", "b?": "0.5", "c?": "2.2"},
        ),
        Case(
            "struct.parquet",
            "verl's struct of 32-bit numbers",
            arrow(prompt=asked, reward_model=(structs, struct)),
            tenths,
        ),
        Case(
            "vectors.parquet", "a column of embeddings", arrow(question=asked, vector=vectors, answer=numbers), tenths
        ),
        Case(
            "whole.parquet",
            "whole numbers that pandas made 64-bit decimals",
            arrow(question=list(SUMS), answer=[float(n) for n in SUMS.values()]),
            SUMS,
        ),
        Case("file.arrow", "Arrow, as a file", arrow("file", question=list(SUMS), answer=list(SUMS.values())), SUMS),
        Case(
            "stream.arrow", "Arrow, as a stream", arrow("stream", question=list(SUMS), answer=list(SUMS.values())), SUMS
        ),
        Case("saved", "save_to_disk, a data set", saved(), SUMS),
        Case("saved-splits", "save_to_disk, splits", saved("train", "test"), SUMS, held_out=12),
        Case(
            "folder",
            "a folder with train and test",
            folder(train__jsonl=text, test__jsonl=lines(*OBJECTS[:3])),
            SUMS,
            held_out=3,
        ),
        Case(
            "folder-excel",
            "the same from a German Excel",
            folder(train__csv=table(GERMANS, ";").encode("cp1252"), test__csv=table(GERMANS[:4], ";").encode("cp1252")),
            GERMAN,
            held_out=3,
        ),
        Case(
            "folder-hub",
            "parts, as the Hub has them",
            folder(
                data___train_00000_of_00002__parquet=arrow(question=list(SUMS)[:6], answer=list(SUMS.values())[:6]),
                data___train_00001_of_00002__parquet=arrow(question=list(SUMS)[6:], answer=list(SUMS.values())[6:]),
                README__md=b"---\nlicense: mit\n---\n# Sums\n",
            ),
            SUMS,
        ),
        Case(
            "folder-codes",
            "leading zeros in a folder",
            folder(train__csv=table([HEAD, *((f"Code of {n}?", f"00{n}") for n in range(12))]).encode()),
            {f"Code of {n}?": f"00{n}" for n in range(12)},
        ),
    ]
    return [*spread, *sheet, *jsons, *tables, *forms()]


def forms() -> list[Case]:
    """The forms of data sets."""
    user, right = {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}
    parts = {"role": "user", "content": [{"type": "text", "text": "1+1?"}]}
    tool = [{"from": "function_call", "value": "add(1, 1)"}, {"from": "observation", "value": "2"}]
    human, gpt = {"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}
    context = "Roses are red.\n\n"
    return [
        one("completion", "prompt and completion", {"prompt": "1+1?", "completion": " 2"}, "1+1?", "2"),
        one("chats", "TRL, prompt and completion as chats", {"prompt": [user], "completion": [right]}, "1+1?", "2"),
        one("trl", "TRL, prompt and solution", {"prompt": [user], "solution": "$\\boxed{2}$"}, "1+1?", "2"),
        one("openai", "OpenAI's lines", {"messages": [user, right]}, "1+1?", "2"),
        one("parts", "the same with content in parts", {"messages": [parts, right]}, "1+1?", "2"),
        one("sharegpt", "ShareGPT", {"conversations": [human, gpt]}, "1+1?", "2"),
        Case(
            "tools.jsonl",
            "ShareGPT with turns of tools",
            lines({"conversations": [human, *tool, gpt]}),
            "function_call",
        ),
        one("alpaca", "alpaca", {"instruction": "Add", "input": "1+1?", "output": "2"}, "Add\n\n1+1?", "2"),
        one("alpaca-empty", "alpaca without input", {"instruction": "1+1?", "input": "", "output": "2"}, "1+1?", "2"),
        one(
            "verl",
            "verl",
            {
                "data_source": "x",
                "prompt": [user],
                "reward_model": {"style": "rule", "ground_truth": "2"},
                "extra_info": {},
            },
            "1+1?",
            "2",
        ),
        one("gsm8k", "GSM8K", {"question": "1+1?", "answer": "1+1=<<1+1=2>>\n#### 1,002"}, "1+1?", "1,002"),
        one("math", "MATH", {"problem": "1+1?", "solution": "So $\\boxed{\\frac{1}{2}}$."}, "1+1?", "\\frac{1}{2}"),
        one(
            "numina",
            "NuminaMath",
            {"problem": "1+1?", "solution": "So \\boxed{2}.", "messages": [user, right]},
            "1+1?",
            "2",
        ),
        one(
            "openr1",
            "OpenR1-Math",
            {"problem": "1+1?", "solution": "long", "answer": "2", "messages": [user, {**right, "content": "long"}]},
            "1+1?",
            "2",
        ),
        one("aime", "AIME", {"ID": "2024-I-1", "Problem": "1+1?", "Solution": "long", "Answer": 2}, "1+1?", "2"),
        one("simpleqa", "SimpleQA", {"metadata": "{}", "problem": "1+1?", "answer": "Two"}, "1+1?", "Two", "text"),
        one("units", "numbers with units", {"question": "1+1?", "answer": "2 km"}, "1+1?", "2 km"),
        one("svamp", "SVAMP", {"Body": "Ann has 1.", "Question": "1+1?", "Answer": 2.0}, "Ann has 1.\n\n1+1?", "2"),
        one(
            "several",
            "several right answers",
            {"question": "1+1?", "answer": ["two", "2"]},
            "1+1?",
            ["two", "2"],
            "text",
        ),
        one(
            "trivia",
            "TriviaQA",
            {"question": "1+1?", "answer": {"value": "Two", "aliases": ["Pair", "Two"], "normalized_aliases": ["two"]}},
            "1+1?",
            ["Two", "Pair"],
            "text",
        ),
        one(
            "squad",
            "SQuAD",
            {"context": "c", "question": "1+1?", "answers": {"text": ["Two"], "answer_start": [1]}},
            "c\n\n1+1?",
            "Two",
            "text",
        ),
        one(
            "drop",
            "DROP",
            {"passage": "p", "question": "1+1?", "answers_spans": {"spans": ["2"], "types": ["number"]}},
            "p\n\n1+1?",
            "2",
        ),
        one("boolq", "BoolQ", {"passage": "p", "question": "1+1?", "answer": True}, "p\n\n1+1?", "true", "text"),
        one(
            "mmlu",
            "MMLU",
            {"question": "Which is red?", "subject": "x", "choices": FOUR, "answer": 1},
            WHICH,
            "B",
            "choice",
        ),
        one(
            "mmlu-pro",
            "MMLU-Pro",
            {"question": "Which is red?", "options": FOUR, "answer": "B", "answer_index": 1},
            WHICH,
            "B",
            "choice",
        ),
        one(
            "arc",
            "ARC",
            {"question": "Which is red?", "choices": {"text": FOUR, "label": [*"ABCD"]}, "answerKey": "B"},
            WHICH,
            "B",
            "choice",
        ),
        one(
            "arc-digits",
            "ARC with digits",
            {"question": "Which is red?", "choices": {"text": FOUR, "label": [*"1234"]}, "answerKey": "2"},
            "Which is red?\n1) sky\n2) rose\n3) leaf\n4) snow",
            "2",
            "choice",
        ),
        one(
            "csqa",
            "CommonsenseQA",
            {
                "question": "Which is red?",
                "question_concept": "x",
                "choices": {"label": [*"ABCD"], "text": FOUR},
                "answerKey": "B",
            },
            WHICH,
            "B",
            "choice",
        ),
        one(
            "obqa",
            "OpenBookQA",
            {"question_stem": "Which is red?", "choices": {"text": FOUR, "label": [*"ABCD"]}, "answerKey": "B"},
            WHICH,
            "B",
            "choice",
        ),
        one(
            "hella",
            "HellaSwag",
            {"ind": 1, "activity_label": "x", "ctx": "Which is red?", "endings": FOUR, "label": "1"},
            WHICH,
            "B",
            "choice",
        ),
        one(
            "medmcqa",
            "MedMCQA",
            {
                "question": "Which is red?",
                "exp": "x",
                "cop": 1,
                "opa": "sky",
                "opb": "rose",
                "opc": "leaf",
                "opd": "snow",
            },
            WHICH,
            "B",
            "choice",
        ),
        one(
            "aqua",
            "AQuA",
            {"question": "Which is red?", "options": ["A)sky", "B)rose", "C)leaf", "D)snow"], "correct": "B"},
            WHICH,
            "B",
            "choice",
        ),
        one(
            "race",
            "RACE",
            {"article": "Roses are red.", "question": "Which is red?", "options": FOUR, "answer": "B"},
            context + WHICH,
            "B",
            "choice",
        ),
        one(
            "siqa",
            "SocialIQA",
            {
                "context": "Roses are red.",
                "question": "Which is red?",
                "answerA": "sky",
                "answerB": "rose",
                "answerC": "leaf",
                "label": "3",
            },
            context + WHICH.replace("\nD) snow", ""),
            "C",
            "choice",
        ),
        one(
            "wino",
            "WinoGrande",
            {"sentence": "Which is red?", "option1": "sky", "option2": "rose", "answer": "2"},
            WHICH[:28],
            "B",
            "choice",
        ),
        one(
            "piqa",
            "PIQA",
            {"goal": "Which is red?", "sol1": "sky", "sol2": "rose", "label": 0},
            WHICH[:28],
            "A",
            "choice",
        ),
        one("letters", "options in the question", {"question": WHICH, "answer": "B"}, WHICH, "B", "choice"),
        Case("unknown.jsonl", "names that nobody knows", lines({"foo": "1?", "bar": "2", "baz": "x"}), "prompt=COLUMN"),
    ]


# What they are read as


def read(case: Case, room: Path) -> tuple[str, str]:
    """What a file is read as, and what is wrong with it: empty if nothing is."""
    from shoal.errors import UserError
    from shoal.tasks.data.task import data_task

    path = room / case.name
    write(path, case.make)
    expected = case.expected
    try:
        task = data_task(path=str(path), **case.options)
    except UserError as error:
        said = str(error).replace(f"{room}/", "")
        fault = "" if isinstance(expected, str) and expected in said else "refused"
        return f"refused: {said}", fault
    rows = [task._rows[number] for number in range(task.info.train + task.info.held_out)]
    found = {row.text: row.answer for row in rows}
    first = next(iter(found.items()))
    shown = f"{task.kind}, {len(rows)} rows: {json.dumps(first, ensure_ascii=False)}; {task.description}"
    if isinstance(expected, str):
        return shown, "not refused"
    faults = [
        f"{asked!r}: {found.get(asked)!r}, not {right!r}"
        for asked, right in expected.items()
        if found.get(asked) != right
    ]
    faults += [f"also {asked!r}" for asked in found if asked not in expected]
    faults += [] if task.kind == case.kind else [f"scored by {task.kind}, not {case.kind}"]
    faults += [] if task.info.held_out == case.held_out else [f"{task.info.held_out} held out"]
    faults += [] if case.says in task.description else [f"does not say {case.says!r}"]
    for asked, right in expected.items():
        number = next((place for place, row in enumerate(rows) if row.text == asked), None)
        if number is None:
            continue
        for each in right if isinstance(right, list) else [right]:
            if max(task._score(one, f"The answer is {each}.", rows[number]) for one in rows[number].right) != 1:
                faults.append(f"{each!r} gets 0 for {asked!r}")
    return shown, "; ".join(faults[:3])


def main(word: str) -> int:
    bad, rows = 0, []
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        from more_files import MORE

        for number, case in enumerate([*cases(), *MORE]):
            if word.lower() not in f"{case.name} {case.what}".lower():
                continue
            shown, fault = read(case, Path(name) / str(number))
            bad += bool(fault)
            print(
                f"{'BAD' if fault else 'ok '} {case.name} ({case.what})\n    {shown[:330]}\n    {fault[:400]}".rstrip()
            )
            read_as = (
                shown if shown.startswith("refused") else shown.partition(":")[0] + f"; {case.says}" * bool(case.says)
            )
            rows.append(f"| `{case.name}` | {case.what} | {read_as} |")
    print(f"{len(rows)} files, {bad} wrong")
    if not word:
        known, count = forms(), len(rows)
        rows.append("\nForms: " + ", ".join(case.what for case in known) + ".")
        del rows[-1 - len(known) : -1]
        PAGE.write_text(PREFACE.format(count, count - bad) + "\n".join(rows) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
