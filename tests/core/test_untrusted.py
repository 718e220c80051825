"""Texts of strangers: what is read within limits, whatever it is."""

from __future__ import annotations

import tomllib

import pytest

from shoal.untrusted import MAX_DEPTH, MAX_DOTS, parse_toml

ENDS = ("\u2028", "\u2029", "\x85", "\u001c", "\v", "\f", "\r")
"""What ends a line for `str.splitlines`, and not in TOML."""


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is parsed any more."""
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("it was parsed"))


@pytest.mark.parametrize("end", ENDS)
def test_a_line_ends_where_toml_ends_it(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch)
    part = f'"{end}"' + ".a" * (MAX_DOTS * 2 // 3)
    with pytest.raises(ValueError, match=f"more than {MAX_DOTS} dots"):
        parse_toml(f"x = {{ {part}.{part} = 1 }}".encode())


@pytest.mark.parametrize("line", ["{} = 1", "[{}]", "[[ {} ]]", "\t {} = 1", "z = 1\r\n{} = 1"])
def test_a_key_that_is_too_long_is_not_parsed(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ["a", "a-b_1", '""', "'x.y'", '"\u2028"', r'"\"x"', r'"\\"', '"#=["']
    key = ".".join(odd) + " . " + "\t.".join(f"k{number}" for number in range(MAX_DEPTH - len(odd) - 1))
    parse_toml(line.format(key).encode())
    refuse(monkeypatch)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(line.format(f"x.y.{key}").encode())


def test_values_may_have_more_dots() -> None:
    text = "a.b.c.d." * (MAX_DOTS // 8)
    rows = "\n".join(f"  {number}.5, [{number}.25]," for number in range(100))
    settings = parse_toml(f'[tasks.one]\nsaid = "{text}" # {text}\nnumbers = [\n{rows}\n]\n'.encode())
    assert settings["tasks"]["one"]["said"] == text
    assert len(settings["tasks"]["one"]["numbers"]) == 200
