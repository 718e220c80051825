"""The sheets of a workbook, which a process of its own reads: a small file may say that it has 17 billion cells.

sheets_of(Path("quiz.xlsx"))        # {"Quiz": [["question", "answer"], ["2 + 2 =", 4.0]]}
"""

import re
import signal
import sys
import zipfile
from datetime import time
from pathlib import Path
from typing import Any, Final

import msgspec

from shoal.child import command, die_with_parent, limit, own_link, start
from shoal.errors import UserError, in_brief
from shoal.untrusted import open_regular, printable

MEMORY: Final = 2**31
"""Bytes that reading a workbook may take."""
SECONDS: Final = 120
"""Seconds that it may take."""
COMMAND: Final = command("shoal.tasks.data.sheets")
UNSAVED: Final = re.compile(rb'<c r="([A-Z]{1,3}[0-9]{1,7})"[^>]*><f(?:[^>]*/>|[^>]*>[^<]*</f>)(?:<v ?/>|<v></v>)?</c>')
"""A cell of an .xlsx with a formula and without its value, which reads as an empty one."""


def sheets_of(path: Path, wanted: str = "") -> dict[str, list[list[Any]]]:
    """The cells of all sheets by their names, row by row, or those of one. Raises `UserError`."""
    open_regular(path).close()  # a pipe would be waited for
    process, link = start((*COMMAND, str(path.absolute()), wanted), OMP_NUM_THREADS="1")
    try:
        if not link.poll(SECONDS):
            raise UserError(f"{path} takes more than {SECONDS} seconds to read: save it as CSV")
        found = msgspec.msgpack.decode(link.recv_bytes())
    except EOFError:
        raise UserError(f"{path} takes more than {MEMORY >> 30} GB of memory to read: save it as CSV") from None
    finally:
        link.close()
        process.kill()
        process.wait()
    if isinstance(found, str):
        raise UserError(f"{path} {found}")
    return dict(found)


def unsaved(path: str) -> str:
    """The first cell whose formula has no saved value; empty if there is none."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            for name in parts.namelist():
                if name.startswith("xl/worksheets/sheet") and (found := UNSAVED.search(parts.read(name))):
                    return found[1].decode()
    return ""


def main() -> None:
    """In the process of its own."""
    link = own_link()
    die_with_parent()
    from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum

    limit(MEMORY)
    if sys.platform != "win32":
        signal.alarm(SECONDS)  # ends it even where a failed allocation left a lock
    path, wanted = sys.argv[1:]
    try:
        book = CalamineWorkbook.from_path(path)
        names = [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
        if wanted and wanted not in names:
            said: Any = f"has no sheet {wanted!r}; it has {printable(', '.join(names), 200)}"
        elif cell := unsaved(path):
            said = (
                f"has formulas without saved values, such as in cell {cell}: open it in a spreadsheet program and "
                "save it"
            )
        else:
            names = [wanted] if wanted else names
            sheets = [(name, book.get_sheet_by_name(name).to_python(skip_empty_area=False)) for name in names]
            said = [
                (n, [[f"{c:%H:%M}" if type(c) is time and not c.second else c for c in r] for r in of])
                for n, of in sheets
            ]
    except (CalamineError, OSError, zipfile.BadZipFile) as error:
        said = f"cannot be read: {printable(in_brief(error), 120)}"
    link.send_bytes(msgspec.msgpack.encode(said, enc_hook=str))
