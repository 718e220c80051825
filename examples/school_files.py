"""Three files as a teacher has them, to try shoal with: `python examples/school_files.py FOLDER`, then
`shoal run FOLDER/conversions.xlsx`.

conversions.xlsx has unit conversions; shop.csv has prices as Excel saves them in Western Europe: semicolons, decimal
commas, the code page 1252; reading.json has a short text with each question.
"""

import csv
import json
import sys
from pathlib import Path
from random import Random

import openpyxl

UNITS = (("kilometres", "metres", 1000), ("metres", "centimetres", 100), ("kilograms", "grams", 1000))
UNITS += (("litres", "millilitres", 1000), ("hours", "minutes", 60), ("minutes", "seconds", 60))
WARES = {"café crème": 250, "baguette": 120, "crêpe": 350, "éclair": 280, "pâté": 490, "crème brûlée": 520}
NAMES = "Anna Ben Clara David Emma Felix Grace Hugo Ida Jonas Lena Max".split()
PLACES = "market library park school station museum beach zoo".split()
THINGS = "apples books candles eggs flowers lemons pencils stamps".split()
WHEN = ("On Monday", "On Friday", "Last summer", "In the morning", "After lunch", "At noon")


def conversions(random: Random) -> list[tuple[str, int]]:
    """Each unit with 25 numbers."""
    return [
        (f"How many {small} are {number} {large}?", number * factor)
        for large, small, factor in UNITS
        for number in random.sample(range(2, 60), 25)
    ]


def shop(random: Random) -> list[tuple[str, str]]:
    """What some of each ware cost."""
    return [
        (f"One {ware} costs € {_euros(price)}. What do {count} of them cost?", _euros(price * count))
        for ware, price in WARES.items()
        for count in random.sample(range(2, 30), 20)
    ]


def reading(random: Random) -> list[dict[str, str]]:
    """A text of three sentences, and who, where or what."""
    rows = []
    for number in range(120):
        (one, two), (here, there) = random.sample(NAMES, 2), random.sample(PLACES, 2)
        thing, other = random.sample(THINGS, 2)
        text = f"{random.choice(WHEN)} {one} went to the {here} with {random.randint(2, 9)} {thing}. "
        text += f"{two} stayed near the {there} and drew {other}. In the evening they met and ate soup."
        asked = ((f"Where did {one} go?", here), (f"Who went to the {here}?", one), (f"What did {two} draw?", other))
        question, answer = asked[number % 3]
        rows.append({"passage": text, "question": question, "answer": answer})
    return rows


def _euros(cents: int) -> str:
    return f"{cents // 100},{cents % 100:02}"


def main(folder: Path) -> None:
    random = Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    book = openpyxl.Workbook()
    book.active.append(("Question", "Answer"))
    for row in conversions(random):
        book.active.append(row)
    book.save(folder / "conversions.xlsx")
    with (folder / "shop.csv").open("w", newline="", encoding="cp1252") as file:
        csv.writer(file, delimiter=";").writerows([("Question", "Réponse"), *shop(random)])
    (folder / "reading.json").write_text(json.dumps(reading(random), indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
