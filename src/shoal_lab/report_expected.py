"""The part of a report's text about what was expected, and what came out."""

from __future__ import annotations

from typing import Any

from shoal_lab.report_cells import cell, percent, table

EXPECTED = {"above": "above", "below": "below", "equal": "equal within ±{:.0%}", "unknown": "–"}


def expectations(data: dict[str, Any]) -> str:
    lines = ["## What was expected, and what came out"]
    if data["expect"]:
        lines.append(
            "Written before the run:\n\n" + "\n".join(f"{n}. {words}" for n, words in enumerate(data["expect"], 1))
        )
    contrasts = data["contrasts"]
    if not contrasts:
        return "\n\n".join([*lines, "No contrast was named before the run, so nothing is tested here."])
    rows = [
        [
            each["title"],
            f"{each['treated']} against {each['control']}",
            f"`{each['figure']}`",
            EXPECTED[each["expect"]].format(each["share"]),
            f"**{each['outcome']}**" + ("" if each["found"] == each["outcome"] else f" ({each['found']})"),
            percent(each["relative"]),
            _p(each) if "adjusted_p" in each else "–",
            cell(each["improvement"]) if each.get("seeds", 0) > 1 else "–",
        ]
        for each in contrasts
    ]
    head = ["contrast", "arms", "figure", "expected", "came out", "difference", "adjusted p", "P(improvement)"]
    made = [each for each in contrasts if "adjusted_p" in each]
    lines.append(table(head, rows))
    kinds = [sum((each["margin"] is not None) is equal for each in made) for equal in (False, True)]
    asked = [_kind(n, what) for n, what in zip(kinds, ("a difference", "equality"), strict=True) if n]
    note = (
        "Paired exact sign-flip tests of whole runs, two one-sided ones where equality was expected; p by Holm over "
        f"{' and '.join(asked)}, all "
        f"regimes together; a p of at most {data['alpha']:g} is a result. Differences in percent of the control's "
        "interquartile mean (held-out pass@1 less what answers get that ignore the question, where that is known; – "
        "where next to nothing is left), with 95 % intervals of the paired bootstrap. P(improvement): the chance that "
        "a run of the first arm is above one of the second."
    )
    if len(made) < len(contrasts):
        note += f" {len(contrasts) - len(made)} could not be made, and Holm's number does not count them."
    lines.append(note)
    lines.append("\n".join(f"- {_sentence(each)}" for each in contrasts))
    return "\n\n".join(lines)


def _p(contrast: dict[str, Any]) -> str:
    """The p of a difference, or of equality and, if that came out, of more than the margin."""
    p = f"{contrast['adjusted_p']:.3g}"
    if contrast["margin"] is None:
        return p
    beyond = f", of more {contrast['adjusted_beyond_p']:.3g}" if contrast["found"] in ("above", "below") else ""
    return f"of equality {p}{beyond}"


def _kind(count: int, what: str) -> str:
    return f"{count} contrast{'s' * (count != 1)} that ask{'s' * (count == 1)} for {what}"


def _sentence(contrast: dict[str, Any]) -> str:
    if "adjusted_p" in contrast:
        return f"{contrast['sentence']} (`{contrast['figure']}`)"
    return f"{contrast['title']}: cannot be concluded. {contrast['sentence']}"
