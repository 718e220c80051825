"""The text of a report: `report.json` as Markdown."""

from typing import Any

from shoal_lab.report_regime import cell, duration, percent, picture_text, regime_text, some, table


def markdown(data: dict[str, Any]) -> str:
    """The report of `report.gather`, with its figures."""
    parts = [_head(data), expectations(data)]
    if data["changed"]:
        parts.append("## Changed after a first look\n\n" + "\n".join(f"- {words}" for words in data["changed"]))
    parts += [picture_text(each) for each in data["figures"] if each["regime"] is None]
    parts += [regime_text(data, name, regime) for name, regime in data["regimes"].items()]
    parts.append(READING)
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(data: dict[str, Any]) -> str:
    finished, left = data["finished"], data["unfinished"]
    seeds = len(data["seeds"])
    lines = [f"# {data['title']}", data["about"]]
    state = f"{finished} of {finished + len(left)} runs finished, {duration(data['seconds'])} of running in all."
    if left:
        state += f" **Not finished, and left out:** {some(left)}."
    if seeds == 1:
        state += " **One seed: nothing here has an interval, and nothing may be concluded.**"
    if data["differs"]:
        state += f" **Finished with other settings than the study has now:** {some(list(data['differs']))}."
    lines.append(state)
    lines.append(f"To repeat it:\n\n    {data['command']}")
    for whose, versions in data["versions"].items():
        if versions:
            words = ", ".join(f"{name} {version}" for name, version in versions.items())
            lines.append(f"Versions {whose}: {words}.")
    arms = [f"- **{name}**: {about}" for name, about in data["arms"].items() if about]
    if arms:
        lines.append("Arms:\n\n" + "\n".join(arms))
    return "\n\n".join(line for line in lines if line)


READING = """## How to read this

The swarm run is the unit: nodes, tasks and rounds of one run depend on each other. What counts is held-out pass@1 and \
the reward of a node's own unfiltered rollouts. What could not be concluded is said so above, and is not evidence that \
there is no effect. What was not measured is –. All figures of tables, contrasts, ratios and gains are by seed in \
`report.json`; `shoal lab verify FOLDER` recomputes this page from them. All points of a picture: the CSV beside it. \
The version of shoal ends with a hash of its .py files. The same seed gives the same digits on one machine with the \
same number of threads; on another kind of processor they are not promised."""
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
