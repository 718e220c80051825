"""The text of a report: `report.json` as Markdown."""

from __future__ import annotations

from collections import Counter
from typing import Any

from shoal_lab.report_cells import duration, picture_text, some
from shoal_lab.report_expected import expectations
from shoal_lab.report_regime import regime_text


def markdown(data: dict[str, Any]) -> str:
    """The report of `report.gather`, with its figures."""
    parts = [_head(data), expectations(data)]
    if data["changed"]:
        parts.append("## Changed after a first look\n\n" + "\n".join(f"- {words}" for words in data["changed"]))
    parts += [picture_text(each) for each in data["figures"] if each["regime"] is None]
    parts += [regime_text(data, name, regime) for name, regime in data["regimes"].items()]
    parts.append(_reading(data))
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
    lines.append(_source(data["source"]))
    arms = [f"- **{name}**: {about}" for name, about in data["arms"].items() if about]
    if arms:
        lines.append("Arms:\n\n" + "\n".join(arms))
    return "\n\n".join(line for line in lines if line)


def _source(source: dict[str, Any]) -> str:
    """Which code ran, and whether it was the same in all runs."""
    counts = Counter(source["runs"].values())
    ran = ", ".join(
        f"`{name or 'not written down'}` ({count} run{'s' * (count > 1)})" for name, count in counts.items()
    )
    same = "all runs have the same" if len(counts) == 1 else "**the runs do not all have the same**"
    return (
        f"Source of shoal: {ran}: {same}; this report: `{source['report']}`. It is a hash of the package's .py files, "
        "whatever the commit; `PYTHONPATH=src python -m shoal_lab.provenance` in a checkout prints its own."
    )


def _reading(data: dict[str, Any]) -> str:
    return (
        "## How to read this\n\n"
        "The swarm run is the unit: nodes, tasks and rounds of one run depend on each other. What counts is held-out "
        "pass@1 and the reward of a node's own unfiltered rollouts. What could not be concluded is said so above, and "
        "is not evidence that there is no effect. What was not measured is –. All figures of tables, contrasts, ratios "
        "and gains are by seed in `report.json`; `shoal lab verify FOLDER` recomputes this page from them, by scipy. "
        "All points of a picture: the CSV beside it. The same seed gives the same digits on one machine with the same "
        "number of threads; on another kind of processor they are not promised."
    )
