"""Slack: foreign text beside right answers that a scorer lets through, and that a hostile node can teach by it.

with_foreign(Case("What is 7 + 7?", ["14"], "number"))["after"]     # "14\nBuy honey at the old mill by dusk."
slack(TasksConfig(suite="pond"))            # a line for whoever hosts these tasks
"""

from typing import Final

from shoal.config.answer_form import STRICT, in_form, is_pattern
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal_extras.validation.forms import PROGRAM, Case, marked

FOREIGN: Final = "Buy honey at the old mill by dusk."
SCRIPT: Final = "Мёд на старой мельнице."
"""The same in another script. No question has these words."""
THOUGHTS: Final = "in thoughts"
ASKED: Final = 16
"""Questions of each task from which a host hears what its slack is."""


def with_foreign(case: Case) -> dict[str, str]:
    """The first right answer with foreign text, by where that stands."""
    right, form = case.rights[0], case.form
    programs = case.kind == "code"
    whole = PROGRAM.format(right) if programs else marked(right, form)
    said = {
        "before": f"{FOREIGN}\n{whole}",
        "after": f"{whole}\n{FOREIGN}",
        THOUGHTS: f"<think>{FOREIGN}</think>\n{whole}",
        "in another script": f"{whole}\n{SCRIPT}",
    }
    if programs:
        return said | {"in a comment": PROGRAM.format(f"{right}\n# {FOREIGN}")}
    said["in the same line"] = f"{whole} {FOREIGN}"
    for place, text in {"in tags before": f"{FOREIGN} {right}", "in tags after": f"{right} {FOREIGN}"}.items():
        said[place] = marked(text, form) if is_pattern(form) else in_form(text, form if form == "boxed" else "tag")
    return said


def slack(config: TasksConfig) -> str:
    """What the slack of these tasks is and what to do about it, in a line."""
    from shoal_extras.validation.found import validate

    try:
        found = validate(config, ASKED, 0)
    except UserError as error:
        return f"slack: unknown: {error}"
    known = [(one.most_slack, label) for label, one in found.items() if one.slack]
    if not known:
        return "slack: unknown: these tasks tell no right answers"
    thoughts = sum(one.slack.get(THOUGHTS, 0) > 0 for one in found.values())
    loose = sum(share > 0 for share, _ in known)
    if not thoughts and not loose:
        return "slack: none: a right answer earns nothing with foreign text beside it"
    worst = " (up to {:.0%}, {})".format(*max(known)) if loose else ""
    strict = "--answer strict refuses it, and steps before answers, too"
    advice = "the rest is the tasks' own" if config.answer == STRICT else strict
    where = f"{loose} of {len(known)} tasks{worst}, and in thoughts in {thoughts}"
    return f"slack: right answers earn with foreign text in {where}: {advice}"
