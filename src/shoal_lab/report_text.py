"""The text of a report: `report.json` as Markdown."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from shoal_lab.contrasts import FEW
from shoal_lab.study import ONLY


def markdown(data: dict[str, Any]) -> str:
    """The report of `report.gather`, with its figures."""
    parts = [_head(data), expectations(data)]
    if data["changed"]:
        parts.append("## Changed after a first look\n\n" + "\n".join(f"- {words}" for words in data["changed"]))
    parts += [regime_text(data, name, regime) for name, regime in data["regimes"].items()]
    parts.append(READING)
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(data: dict[str, Any]) -> str:
    finished, left = data["finished"], data["unfinished"]
    seeds = len(data["seeds"])
    lines = [f"# {data['title']}", data["about"]]
    state = f"{finished} of {finished + len(left)} runs finished, {data['seconds'] / 3600:.1f} hours of running in all."
    if left:
        state += f" **Not finished, and left out:** {some(left)}."
    if seeds == 1:
        state += " **One seed: nothing here has an interval, and nothing may be concluded.**"
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
there is no effect. What was not measured is –. All figures of tables, contrasts and ratios are by seed in \
`report.json`. All points of a picture: the CSV beside it. \
The version of shoal ends with a hash of its .py files. The same seed gives the same digits on one machine with the \
same number of threads; on another kind of processor they are not promised."""
DIFFERENT = {
    "rounds": " Rounds differ ({}): the pictures and the means along FLOPs show the rest.",
    "counted_nodes": " Nodes that count differ ({}): cumulative rewards are sums over them and not comparable.",
}
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
        ]
        for each in contrasts
    ]
    head = ["contrast", "arms", "figure", "expected", "came out", "difference", "adjusted p"]
    lines.append(table(head, rows))
    lines.append(
        "Paired exact sign-flip tests of whole runs, two one-sided ones where equality was expected; p by Holm over "
        "all contrasts that could be made and ask for the same, a difference or equality, in all regimes together; a p "
        f"of at most {data['alpha']:g} is a result. Differences in percent of the control's interquartile mean "
        "(held-out pass@1 less what answers get that ignore the question, where that is known; – where next to nothing "
        "is left), with 95 % intervals of the paired bootstrap."
    )
    concluded = "- {sentence} (`{figure}`)", "- {title}: cannot be concluded. {sentence}"
    lines.append("\n".join(concluded["adjusted_p" not in each].format(**each) for each in contrasts))
    return "\n\n".join(lines)


def _p(contrast: dict[str, Any]) -> str:
    """The p of a difference, or of equality and, if that came out, of more than the margin."""
    p = f"{contrast['adjusted_p']:.3g}"
    if contrast["margin"] is None:
        return p
    beyond = f", of more {contrast['adjusted_beyond_p']:.3g}" if contrast["found"] in ("above", "below") else ""
    return f"of equality {p}{beyond}"


def number(value: float) -> str:
    """Three digits, or all before the point up to ten millions."""
    if 100 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return "0" if abs(value) < 1e-9 else f"{value:.3g}"  # sums in another order leave a little


def cell(interval: dict[str, Any] | None, unit: str = "", seeds: int = 2) -> str:
    """A figure with its interval, which one seed does not have."""
    if interval is None:
        return "–"
    if seeds < 2:
        return number(interval["value"]) + unit
    return f"{number(interval['value'])}{unit} [{number(interval['low'])}, {number(interval['high'])}]"


def percent(interval: dict[str, Any] | None) -> str:
    if interval is None:
        return "–"
    ends = [100 * interval[end] for end in ("value", "low", "high")]
    value, low, high = (("+" if end > 0 else "") + number(end) for end in ends)
    return f"{value} %" if low == high else f"{value} % [{low}, {high}]"


def some(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f", and {len(names) - most} more (report.json)" if len(names) > most else "")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(each.replace("|", "\\|") for each in line) + " |" for line in lines)


FIGURES = {
    "held_out/start": "held-out pass@1 at the start",
    "held_out/final": "held-out pass@1 at the end",
    "held_out/gain": "gain: end less start",
    "held_out/blind": "*answers that ignore the question*: the commonest of each task",
    "held_out/shuffled": "*the last answers, scored against other questions*",
    "held_out/area_per_update": "held-out pass@1, mean along updates",
    "held_out/area_per_flop": "held-out pass@1, mean along FLOPs",
    "cumulative/reward/local": "cumulative reward, honest: own unfiltered rollouts",
    "cumulative/reward/trained_on": "*diagnostic*: cumulative reward over the training set",
    "held_out/forgetting": "forgetting",
    "mean/rollouts/live_local": "live groups of a node in a round, of its own",
    "mean/gradient/peers": "share of the gradient from others",
    "mean/peers/ess": "effective sample size of peers' rollouts",
    "mean/peers/shortened": "taken out of peers' right answers",
    "attack/planted": "planted text: share of honest completions, last fifth",
    "attack/reasoning": "wrong reasoning: share of honest completions, last fifth",
    "attack/gradient": "share of honest gradients from the hostile, last fifth",
    "total/refused": "rollouts refused, all nodes",
    "per_node/tokens/generated": "tokens that a node generated",
    "per_node/tokens/prompted": "tokens that it read to answer",
    "per_node/tokens/trained": "tokens that it trained on",
    "per_node/tokens/read": "tokens that its updates read, with prompts",
    "per_node/flops/generate": "FLOPs of a node, answering",
    "per_node/flops/learn": "FLOPs of a node, learning",
}
"""The rows of a regime's table, in order."""


def regime_text(data: dict[str, Any], name: str, regime: dict[str, Any]) -> str:
    lines = ["## Figures" if name == ONLY else f"## Regime: {name}", regime["about"]]
    arms = regime["arms"]
    rows = []
    others = dict.fromkeys([data["figure"], *(c["figure"] for c in data["contrasts"])])
    for figure in [*FIGURES, *(each for each in others if each not in FIGURES)]:
        cells = [_figure(each.get(figure)) for each in arms.values()]
        if set(cells) != {"–"}:
            rows.append([FIGURES.get(figure, f"`{figure}`"), *cells])
    lines.append(table(["", *arms], rows))
    lines.append(_under_table(data, regime))
    lines.append(_ratios(regime))
    for each in data["figures"]:
        if each["regime"] == name:
            file = quote(each["name"])
            lines.append(f"![{each['name']}]({file}.png)\n\n{each['caption']} [Numbers]({file}.csv)")
    return "\n\n".join(line for line in lines if line)


def _under_table(data: dict[str, Any], regime: dict[str, Any]) -> str:
    runs = {len(figures["seeds"]) for arm in regime["arms"].values() for figures in arm.values() if figures}
    ends = regime["areas_end"]
    note = "Interquartile mean over seeds" + (" [95 % interval]." if max(runs, default=0) > 1 else ".")
    if 1 < max(runs, default=0) < FEW:
        note += f" With fewer than {FEW} seeds such intervals are narrower than they say."
    if ends["rounds"] is not None:
        note += f" Figures, here and in contrasts, end where the shortest of these runs does: round {ends['rounds']:g}"
        note += f"; means along FLOPs at {ends['flops']:.3g} of a node." if ends["flops"] is not None else "."
    for name, words in DIFFERENT.items():
        if len(set(regime[name].values())) > 1:
            note += words.format(", ".join(f"{arm}: {count}" for arm, count in regime[name].items()))
    return note + " The reward over the training set rises by the filter alone: it says nothing of what was learned."


def _ratios(regime: dict[str, Any]) -> str:
    if not regime["ratios"]:
        return ""
    control = regime["ratios"][0]["control"]
    paper = any(each["paper"] for each in regime["ratios"])
    seeds = max((len(f["seeds"]) for arm in regime["arms"].values() for f in arm.values() if f), default=1)
    rows = [
        [each["arm"], cell(each["trained_on"], "×", seeds), cell(each["local"], "×", seeds)]
        + ([f"{each['paper']:.2f}×" if each["paper"] else "–"] if paper else [])
        for each in regime["ratios"]
    ]
    head = [f"over {control}", "trained on (diagnostic)", "honest"] + (["the paper's"] if paper else [])
    words = (
        f"Cumulative reward of an arm over that of {control}, per node and round. The first column rises by what "
        "is chosen to train on, before anything is learned; the second does not."
    )
    if paper:
        words += " Which of the two the paper plots is not stated there (arXiv 2509.08721)."
    return words + "\n\n" + table(head, rows)


def _figure(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "–"
    seeds = len(figure["seeds"])
    missing = f" ({seeds - figure['missing']} of {seeds} seeds)" if figure["missing"] else ""
    return cell(figure, seeds=seeds - figure["missing"]) + missing
