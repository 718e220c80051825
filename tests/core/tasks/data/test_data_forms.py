"""Data sets in the forms that people have: which columns are what, and that the right answer is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from data_files import SUMS, write

from shoal.errors import UserError
from shoal.tasks.data.task import data_task

FORMS: list[tuple[str, dict[str, Any], str, str | list[str], str]] = [
    (
        "commonsenseqa",
        {
            "answerKey": "B",
            "question": {
                "stem": "Which?",
                "choices": [{"label": "A", "text": "red"}, {"label": "B", "text": "blue"}],
            },
        },
        "Which?\nA) red\nB) blue",
        "B",
        "choice",
    ),
    ("qa", {"Question ": "1+1?", " Answer": "2"}, "1+1?", "2", "number"),
    ("q and a", {"id": 7, "Q": "1+1?", "A": "2"}, "1+1?", "2", "number"),
    ("value", {"question": "1+1?", "answer": {"value": "2", "unit": ""}}, "1+1?", "2", "number"),
    ("input alone", {"instruction": "", "input": "1+1?", "output": "2"}, "1+1?", "2", "number"),
    (
        "inner chat",
        {"conversation": {"messages": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]}},
        "1+1?",
        "2",
        "number",
    ),
    ("alpaca", {"instruction": "Add one", "input": "1", "output": "2"}, "Add one\n\n1", "2", "number"),
    (
        "openai",
        {
            "messages": [
                {"role": "system", "content": "Be brief"},
                {"role": "user", "content": "1+1?"},
                {"role": "assistant", "content": "2"},
            ]
        },
        "1+1?",
        "2",
        "number",
    ),
    (
        "sharegpt",
        {"conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]},
        "1+1?",
        "2",
        "number",
    ),
    (
        "verl",
        {
            "data_source": "x",
            "prompt": [{"role": "user", "content": "1+1?"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"index": 1},
        },
        "1+1?",
        "2",
        "number",
    ),
    ("trl", {"prompt": [{"role": "user", "content": "1+1?"}], "solution": "$\\boxed{2}$"}, "1+1?", "2", "number"),
    (
        "trlpc",
        {"prompt": [{"role": "user", "content": "1+1?"}], "completion": [{"role": "assistant", "content": "2"}]},
        "1+1?",
        "2",
        "number",
    ),
    (
        "mmlu",
        {"question": "1+1?", "subject": "x", "choices": ["1", "2", "7000", "8000"], "answer": 1},
        "1+1?\nA) 1\nB) 2\nC) 7000\nD) 8000",
        "B",
        "choice",
    ),
    (
        "arc",
        {
            "id": "x",
            "question": "1+1?",
            "choices": {"text": ["a", "b", "c"], "label": ["A", "B", "C"]},
            "answerKey": "B",
        },
        "1+1?\nA) a\nB) b\nC) c",
        "B",
        "choice",
    ),
    (
        "medqa",
        {"question": "1+1?", "answer": "b", "options": {"A": "a", "B": "b"}, "meta_info": "", "answer_idx": "B"},
        "1+1?\nA) a\nB) b",
        "B",
        "choice",
    ),
    (
        "abcd",
        {"question": "1+1?", "A": "x", "B": "y", "C": "z", "D": "w", "answer": "C"},
        "1+1?\nA) x\nB) y\nC) z\nD) w",
        "C",
        "choice",
    ),
    (
        "opt1",
        {"sentence": "", "question": "1+1?", "option1": "x", "option2": "y", "answer": "2"},
        "1+1?\nA) x\nB) y",
        "B",
        "choice",
    ),
    (
        "hella",
        {"ctx": "He 1", "endings": ["a", "b", "c", "d"], "label": "3"},
        "He 1\nA) a\nB) b\nC) c\nD) d",
        "D",
        "choice",
    ),
    (
        "obqa",
        {"question_stem": "1+1?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "A"},
        "1+1?\nA) a\nB) b",
        "A",
        "choice",
    ),
    (
        "aqua",
        {"question": "1?", "options": ["A)1", "B)2", "C)3"], "rationale": "...", "correct": "C"},
        "1?\nA) 1\nB) 2\nC) 3",
        "C",
        "choice",
    ),
    ("gsm8k", {"question": "1+1?", "answer": "1+1 = <<1+1=2>>\n#### 2"}, "1+1?", "2", "number"),
    (
        "math",
        {"problem": "1+1?", "level": "Level 1", "type": "Algebra", "solution": "It is $\\boxed{2}$."},
        "1+1?",
        "2",
        "number",
    ),
    (
        "numina",
        {"source": "x", "problem": "1+1?", "solution": "long", "answer": "\\frac{1}{3}"},
        "1+1?",
        "\\frac{1}{3}",
        "number",
    ),
    (
        "trivia",
        {
            "question": "Who 1?",
            "answer": {"value": "Sinclair Lewis", "aliases": ["Lewis", "Harry Sinclair"], "type": "x"},
        },
        "Who 1?",
        ["Sinclair Lewis", "Lewis", "Harry Sinclair"],
        "text",
    ),
    (
        "squad",
        {"question": "Who 1?", "context": "ctx", "answers": {"text": ["Denver"], "answer_start": [1]}},
        "ctx\n\nWho 1?",
        "Denver",
        "text",
    ),
    ("several", {"question": "Who 1?", "answers": ["a", "b"]}, "Who 1?", ["a", "b"], "text"),
    ("bool", {"question": "Is 1 even?", "passage": "p", "answer": False}, "p\n\nIs 1 even?", "false", "text"),
    ("reading", {"text": "p", "question": "Is 1 even?", "answer": "no"}, "p\n\nIs 1 even?", "no", "text"),
    (
        "read-choice",
        {"text": "p", "question": "1?", "choices": ["red", "blue"], "answer": "blue"},
        "p\n\n1?\nA) red\nB) blue",
        "B",
        "choice",
    ),
    (
        "alpaca",
        {"instruction": "Who?", "output": "Ann", "text": "Instruction: Who? Response: Ann"},
        "Who?",
        "Ann",
        "text",
    ),
    ("two", {"frage": "1?", "loesung": "1"}, "1?", "1", "number"),
    ("foo", {"foo": "1?", "bar": "1"}, "1?", "1", "number"),
    ("evals", {"input": [{"role": "user", "content": "1?"}], "ideal": "1"}, "1?", "1", "number"),
    ("qtext", {"question": "1?", "gold": 3.0}, "1?", "3", "number"),
    ("mcqtext", {"question": "1?", "choices": ["red", "blue"], "answer": "blue"}, "1?\nA) red\nB) blue", "B", "choice"),
    (
        "winogrande",
        {"sentence": "1 _?", "option1": "a", "option2": "b", "answer": "1"},
        "1 _?\nA) a\nB) b",
        "A",
        "choice",
    ),
    (
        "mmlupro",
        {"question": "1?", "options": ["a", "b", "c"], "answer": "C", "answer_index": 2, "cot_content": ""},
        "1?\nA) a\nB) b\nC) c",
        "C",
        "choice",
    ),
    ("piqa", {"goal": "1?", "sol1": "a", "sol2": "b", "label": 0}, "1?\nA) a\nB) b", "A", "choice"),
]
"""A name, a row, what is asked, what is right, and the kind of scoring."""


@pytest.mark.parametrize(("name", "row", "asked", "right", "kind"), FORMS, ids=[form[0] for form in FORMS])
def test_a_usual_form(tmp_path: Path, name: str, row: dict[str, Any], asked: str, right: Any, kind: str) -> None:
    task = data_task(path=str(write(tmp_path / f"{name}.jsonl", [row])))
    question = task.question(0, 0)
    assert (question.prompt[-1].content, task.kind) == (asked, kind)
    for one in right if isinstance(right, list) else [right]:
        assert task.score(question.id, [one, f"The answer is {one}.", f"<answer>{one}</answer>", ""]) == [1, 1, 1, 0]


@pytest.mark.parametrize(
    "document",
    [
        {"columns": ["question", "answer"], "index": [*range(12)], "data": [[f"{n} + 1?", n + 1] for n in range(12)]},
        {f"{n} + 1?": n + 1 for n in range(12)},
        {f"{n} + 1?": str(n + 1) for n in range(12)},
    ],
)
def test_a_json_document_has_rows_in_its_own_way(tmp_path: Path, document: dict[str, Any]) -> None:
    (tmp_path / "quiz.json").write_text(json.dumps(document, indent=1))
    task = data_task(path=str(tmp_path / "quiz.json"))
    asked = {question.text: task.answer(question.id) for question in (task.question(0, n) for n in range(40))}
    assert len(asked) > 5
    assert all(right == str(int(text.split()[0]) + 1) for text, right in asked.items())


@pytest.mark.parametrize("document", [{"columns": 3, "data": [[1]]}, {"data": 3}])
def test_a_json_document_of_no_rows_is_an_error_of_one_line(tmp_path: Path, document: dict[str, Any]) -> None:
    (tmp_path / "quiz.json").write_text(json.dumps(document))
    with pytest.raises(UserError):
        data_task(path=str(tmp_path / "quiz.json"))


def test_three_unknown_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it has foo, bar, baz: say --data"):
        data_task(path=str(write(tmp_path / "x.jsonl", [{"foo": "1?", "bar": "1", "baz": "2"}])))


def test_a_digit_among_options_is_a_number_and_not_a_text(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "choices": ["1", "0"], "answer": n % 2} for n in range(4)]
    task = data_task(path=str(write(tmp_path / "x.jsonl", rows)))
    assert {task.question(seed, 0).text[0]: task.answer(task.question(seed, 0).id) for seed in range(40)} == {
        **{"0": "A", "1": "B"},
        **{"2": "A", "3": "B"},
    }


def test_a_row_with_a_right_answer_that_is_no_option_is_left_out(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "choices": ["a", "b"], "answer": "A"} for n in range(20)]
    task = data_task(path=str(write(tmp_path / "x.jsonl", [*rows, {**rows[0], "answer": "F"}])))
    assert (task.info.train, task.info.skipped) == (20, 1)
    assert "row 21 of x.jsonl has the right answer 'F', which is none of its options A, B" in task.info.first


@pytest.mark.parametrize(
    ("odd", "usual", "kind"), [("3100 cm", "{}00", "number"), ("2", "B", "choice"), ("none", "{}", "number")]
)
def test_one_odd_row_is_named_and_changes_no_other(tmp_path: Path, odd: str, usual: str, kind: str) -> None:
    rows = [{"question": f"{n}?", "answer": usual.format(n)} for n in range(1, 31)]
    task = data_task(path=str(write(tmp_path / "x.jsonl", [*rows, {"question": "odd?", "answer": odd}])))
    assert (task.kind, task.info.odd_count, task.info.odd) == (kind, 1, [f"row 31 of x.jsonl: {odd!r}"])
    for seed in range(60):
        question = task.question(seed, 0)
        assert task.score(question.id, [f"The answer is {task.answer(question.id)}."]) == [1.0]


def test_rows_that_contradict_each_other_are_left_out_or_both_right(tmp_path: Path) -> None:
    rows = [*SUMS, {"prompt": "3 + 3 =", "answer": "9"}, SUMS[0]]
    path = str(write(tmp_path / "x.jsonl", rows))
    task = data_task(path=path)
    assert (task.info.train, task.info.duplicates, task.info.conflict_count, task.info.skipped) == (100, 1, 2, 2)
    assert "rows 34, 101 ask the same and have different right answers" in task.info.first
    both = data_task(path=path, conflicts="both_right")
    assert (both.info.train, both.info.skipped) == (101, 0)
    [asked] = {both.question(seed, 0).id for seed in range(2000) if both.question(seed, 0).text == "3 + 3 ="} and [
        next(both.question(seed, 0).id for seed in range(2000) if both.question(seed, 0).text == "3 + 3 =")
    ]
    assert both.score(asked, ["6", "9", "7"]) == [1.0, 1.0, 0.0]


def test_the_content_is_the_same_in_every_file(tmp_path: Path) -> None:
    """Also where a number is 5.0 in one of them and 5 in another."""
    import openpyxl
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    rows = [{"question": f"Wie gro\u00df ist {n}, {n}?", "answer": n / 10} for n in range(1, 31)]
    text = "\n".join(f'"{row["question"]}",{row["answer"]}' for row in rows)
    files = {
        "utf8.csv": f"\ufeffquestion,answer\n{text}".encode(),
        "cp1252.csv": f"question, answer\r\n{text}".encode("cp1252"),
        "utf16.txt": ("question\tanswer\n" + text.replace('",', '"\t')).encode("utf-16"),
        "semicolon.csv": ("sep=;\nquestion;answer\n" + text.replace('",', '";')).encode(),
        "array.json": json.dumps(rows).encode(),
        "columns.json": json.dumps({name: [row[name] for row in rows] for name in rows[0]}).encode(),
        "lines.json": "".join(json.dumps(row) + "\n" for row in rows).encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    table = pyarrow.table({"question": [row["question"] for row in rows], "answer": [row["answer"] for row in rows]})
    single = table.set_column(1, "answer", pyarrow.array([row["answer"] for row in rows], pyarrow.float32()))
    pyarrow.parquet.write_table(table, tmp_path / "double.parquet")
    pyarrow.parquet.write_table(single, tmp_path / "single.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "table.arrow", compression="uncompressed")
    with pyarrow.CompressedOutputStream(str(tmp_path / "packed.csv.zst"), "zstd") as packed:
        packed.write(files["utf8.csv"])
    with pyarrow.CompressedOutputStream(str(tmp_path / "packed.jsonl.gz"), "gzip") as packed:
        packed.write(files["lines.json"])
    book = openpyxl.Workbook()
    book.active.append(["question", "answer"])
    for row in rows:
        book.active.append([row["question"], row["answer"]])
    book.save(tmp_path / "book.xlsx")
    found = {path.name: data_task(path=str(path)).info for path in sorted(tmp_path.iterdir()) if path.is_file()}
    assert len({info.content for info in found.values()}) == 1, {name: info.how for name, info in found.items()}
    assert (len(found), found["cp1252.csv"].how) == (13, "cp1252")


def test_a_decimal_comma_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("question;answer\n" + "".join(f"{n} halves?;{n // 2},{n % 2 * 5}\n" for n in range(20)))
    task = data_task(path=str(path))
    assert (task.kind, task.info.comma) == ("number", True)
    question = next(task.question(seed, 0) for seed in range(200) if task.question(seed, 0).text == "3 halves?")
    assert task.score(question.id, ["1,5", "1.5", "It is 1,5.", "15", "1"]) == [1, 1, 1, 0, 0]
    assert data_task(path=str(path), score="number").score(question.id, ["1,5", "1.5", "15"]) == [1, 1, 0]
    assert data_task(path=str(path), decimal="point").kind == "text"


def test_a_table_without_names_of_columns_is_questions_and_answers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("".join(f"{n} + 1?,{n + 1}\n" for n in range(20)))
    assert data_task(path=str(tmp_path / "x.csv")).info.train == 20


def test_a_split_without_right_answers_says_which_one_to_take(tmp_path: Path) -> None:
    rows = [{"ctx": f"Then {n}", "endings": ["he runs", "he sits"], "label": ""} for n in range(12)]
    with pytest.raises(UserError, match=r"no right answer.*take another \(validation\)"):
        data_task(path=str(write(tmp_path / "test.jsonl", rows)))


def test_formulas_without_saved_values_are_said(tmp_path: Path) -> None:
    """Programs that write workbooks leave values out, and a cell without one reads as an empty one."""
    import openpyxl

    book = openpyxl.Workbook()
    for row in (["question", "answer"], *([f"{n} + 1?", n + 1] for n in range(20)), ["2 + 2?", "=2+2"]):
        book.active.append(row)
    book.save(tmp_path / "book.xlsx")
    with pytest.raises(UserError, match="formulas without saved values, such as in cell B22"):
        data_task(path=str(tmp_path / "book.xlsx"))


def test_a_row_of_several_files_is_named_by_its_file(tmp_path: Path) -> None:
    for name, bad in (("a", 3), ("b", 2)):
        rows = [{"question": f"{name} {n}?", "answer": None if n == bad else "x"} for n in range(1, 4)]
        write(tmp_path / f"{name}.jsonl", rows)
    with pytest.raises(UserError, match=r"row 3 of a\.jsonl"):
        data_task(path=str(tmp_path))
    (tmp_path / "a.jsonl").write_text((tmp_path / "a.jsonl").read_text().replace("null", '"x"'))
    with pytest.raises(UserError, match=r"row 2 of b\.jsonl"):
        data_task(path=str(tmp_path))


def test_columns_that_the_model_does_not_see_are_named(tmp_path: Path) -> None:
    rows = [{"tale": f"Story {n}.", "question": f"Who {n}?", "answer": "Ann"} for n in range(12)]
    assert "the model does not see tale" in data_task(path=str(write(tmp_path / "x.jsonl", rows))).description
    task = data_task(path=str(write(tmp_path / "y.jsonl", rows)), context="tale")
    assert "the model does not see" not in task.description
    assert task.question(0, 0).text in {f"Story {n}.\n\nWho {n}?" for n in range(12)}
    with pytest.raises(UserError, match="no column 'txt' for the context"):
        data_task(path=str(write(tmp_path / "z.jsonl", rows)), context="txt")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("single.csv", "question,answer\n'a, b?','1'\n'c, d?','2'\n"),
        ("digits.csv", 'question,answer\n"a, b?","=""1"""\n"c, d?","=""2"""\n'),
        ("nul.csv", 'question,answer\n"a, b?\0",1\n"c, d?\0",2\n'),
        ("bars.txt", "| question | answer |\n|---|---|\n| a, b? | 1 |\n| c, d? | 2 |\n"),
        ("nested.json", json.dumps({"data": {"train": [{"q": "a, b?", "a": 1}, {"q": "c, d?", "a": 2}]}})),
    ],
)
def test_marks_around_cells_are_no_part_of_them(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    task = data_task(path=str(tmp_path / name))
    assert {task._rows[n].text: task._rows[n].answer for n in range(2)} == {"a, b?": "1", "c, d?": "2"}


def test_a_formula_without_its_value_is_no_right_answer(tmp_path: Path) -> None:
    (tmp_path / "quiz.csv").write_text("question,answer\na?,=B2+1\n")
    with pytest.raises(UserError, match=r"the formula =B2.1 in 'answer', and not its value: save the values"):
        data_task(path=str(tmp_path / "quiz.csv"))
