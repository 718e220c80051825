"""What a run shows while it goes: a live table in a terminal, or a line now and then in a file, a pipe or a narrow
terminal.

    with make_display(Console(), total_rounds=60, nodes=["ada", "bob"]) as display:
        display.status("loading models")
        display.update(rows, round)        # the metrics of all nodes in this round
        display.note("fewer than J live rollouts: 2 of 4")

All displays are a `Watcher` (`runs.watcher`). Texts may come from strangers, so nothing is read as markup.
"""

from collections.abc import Sequence

from rich.console import Console

from shoal.display.figures import Progress, Row
from shoal.display.lines import PlainDisplay
from shoal.display.live import WIDTH, LiveDisplay


def make_display(
    console: Console, total_rounds: int, nodes: Sequence[str], history: Sequence[Row] = ()
) -> LiveDisplay | PlainDisplay:
    """The display that fits `console`. `history`: the metrics of earlier rounds, if a run is resumed."""
    kind = LiveDisplay if console.is_interactive and console.width >= WIDTH else PlainDisplay
    return kind(Progress(total_rounds, nodes, history), console)
