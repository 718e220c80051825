"""Display names: whatever a stranger chooses, what is shown is short, visible and beside the key."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.display_name import LONGEST, fault, full_name, harmless
from shoal.config.load import make_config
from shoal.errors import UserError

KEY = "brave-otter-3f2a"
GOOD = ["Ada", "Ada's laptop", "dr. x-7_b", "Zoë", "Кит", "小魚", "อ้น", "7"]
GOOD += ["Ελένη", "りんごカフェ 東京", "김철수", "Mañana 2", "ዳዊት", "राम 3", "anne-marie 2", "my-old-node", "Đặng"]
GOOD += ["Мария Ивановна Кузнецова", "Анна Мария Блок", "the old facebook", "Jo Ann Smith 2", "lab 10 2024"]
LEFTWARDS = ["שלום", "مرحبا", "דנה 7", "7 דנה", "عبد الله", "ދިވެހި", "שָׁלוֹם", "محمد بن سلمان"]
BAD = [
    *("", " ", "Ada ", " Ada", "a  b", "a\nb", "a\tb", "\x1b[31mred", "a\u202eb", "a\u2066b", "a\u200bb", "a\u00adb"),
    *("[bold]Ada", "<b>", "a&b", "(Ada)", "Ada: 1.0", "a/b", "\ufeffAda", "a\ud800", "\u3164", "a\u034fb", "a\ufe0fb"),
    *(
        "e" + "\u0301" * 9,
        "\u0301a",
        "שלום Ada",
        "שלוםمرحبا",
        "سلام\u0660",
        "ﺳﻼﻡ",
        "\ufdfa",
        "a\u0660",
        "n" * (LONGEST + 1),
        KEY,
        "x brave-otter-0000",
        "-",
        "'",
    ),
    *("brave_otter_3f2a", "brave otter 3f2a", "Brave.Otter 3F2A", "brave - otter - 3f2a", "brave otter cafe"),
    *("Ada brave'otter'3f2a", "brave_otter_3flo", "ｂrave_otter_3f2a", "сор_хеу_31о2", "brave otter 2024"),
    "שלום_עולם_3102",
    *("BRAVE-OTTER-3F2A", "ｂrave-otter-3f2a", "e\u0301"),
]
IMITATIONS = [
    *("аnchovy", "brave-оtter-3f2a", "brave-otter-3f2а", "Αda", "Ꭺda", "ꓮda", "brave一otter", "Ada 小魚", "𝐀da"),
    *("brave-otter-3\u0323f2a", "brave-ot\u0324ter-3f2a", "brave-otter-\u03273f2a", "brave otter 3\u0332f2a"),
    *("brave-0tter-3f2a", "swift-gu11-3f2a", "wise 0w1 3f2a", "сор-х0у-3102"),
    *("сор-хеу-3102", "brɑve-otter-3f2a", "brave-otter-3fɑ2", "brave-otter-3flo", "Ada brave-ottér-3f2a"),
]
BAD += IMITATIONS


@pytest.mark.parametrize("name", GOOD)
def test_names_of_people_and_machines_may_be_chosen(name: str) -> None:
    assert fault(name) == ""
    assert full_name(KEY, name) == f"{KEY} ({name})"
    assert make_config({"network": {"display_name": name}}, "here").network.display_name == name


@pytest.mark.parametrize("name", BAD)
def test_others_are_refused_to_their_owner_and_never_shown(name: str) -> None:
    assert fault(name)
    assert harmless(name) == ""
    assert full_name(KEY, name) == KEY
    if name:
        with pytest.raises(UserError, match=r"display.name"):
            make_config({"network": {"display_name": name}}, "here")


@pytest.mark.parametrize("name", LEFTWARDS)
def test_a_name_from_right_to_left_turns_nothing_around(name: str) -> None:
    assert harmless(name) == name
    assert full_name(KEY, name) == f"{KEY} (\u2068{name}\u2069)"
    assert full_name(KEY, f"{name}\u2069") == full_name(KEY, f"\u2067{name}") == KEY
    assert make_config({"network": {"display_name": name}}, "here").network.display_name == name


def test_nobody_needs_one() -> None:
    assert full_name(KEY, None) == full_name(KEY, "") == KEY
    assert make_config({}, "here").network.display_name == ""


@given(st.text(max_size=40) | st.text(alphabet="aÀ\u0301\u202e\u2069אש\u0660س (<[&_.-'3\n", max_size=40))
def test_what_is_shown_cannot_harm(text: str) -> None:
    name = harmless(text)
    assert name in ("", text)
    assert len(name) <= LONGEST
    assert name.isprintable()
    assert not set(name) & set('()[]<>&"`\\/:;{}|')
    directions = {unicodedata.bidirectional(char) for char in name}
    assert directions <= {"L", "R", "AL", "EN", "NSM", "ES", "CS", "ON", "WS"}, "no control of directions"
    assert len(directions & {"L", "R", "AL"}) <= 1
    assert full_name(KEY, text).startswith(KEY)
