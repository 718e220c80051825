"""`shoal watch`: the window onto runs."""

from __future__ import annotations

import argparse
import ipaddress
import socket
import sys
import threading
import webbrowser
from pathlib import Path

from shoal.errors import UserError

HELP = """Opens a page that shows runs: curves, who learned from whom, every completion, what was refused.

  shoal watch                        the newest run in runs/, in the browser
  shoal watch runs/one runs/two      side by side
  shoal watch lab/paper              all runs of a study
  shoal watch --serve runs           hosts all of runs/, also those to come, and opens no browser
  shoal watch --serve --listen 0.0.0.0:8400 runs      for other machines, with a token

It reads the folders and changes nothing. It answers this machine alone unless --listen says otherwise, and then it asks
for a token, which it prints. What it sends is not encrypted: beyond a network that you trust, put it behind TLS."""
LISTEN = "127.0.0.1:8400"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="of runs or studies (default: newest run)")
    parser.add_argument("--serve", action="store_true", help="host it: open no browser, and keep to the port")
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"where to answer (default {LISTEN})")
    parser.add_argument("--name", action="append", default=[], metavar="HOST", help="another name it is reached by")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="ask for the token in this file, everywhere")
    parser.add_argument("--no-open", action="store_true", help="open no browser")


def command(args: argparse.Namespace) -> int:
    """`shoal watch`."""
    try:
        import uvicorn

        from shoal.window.folders import open_folders
        from shoal.window.server import make_app
    except ImportError as error:
        raise UserError(f"the window needs {error.name}: pip install 'shoal[watch]'") from None
    from shoal.window.guard import LOOPBACK, Access, new_token

    host, port = _address(args.listen or LISTEN)
    token = _token(args.token_file) if args.token_file else None
    shared = not _is_loopback(host)
    if shared and token is None:
        token = new_token()
    anywhere = host in ("0.0.0.0", "::")
    names = {host, *args.name} | ({socket.gethostname(), f"{socket.gethostname()}.local"} if anywhere else set())
    access = Access(LOOPBACK | {name.lower() for name in names}, any_address=anywhere, token=token)
    sources = open_folders(args.folders)
    bound = _bound(host, port, other=not (args.listen or args.serve))
    shown = (socket.gethostname() if anywhere else f"[{host}]" if ":" in host else host, bound.getsockname()[1])
    address = f"http://{shown[0]}:{shown[1]}/" + (f"?token={token}" if token and not args.token_file else "")
    print(
        f"watching {len(sources.all())} run{'s' * (len(sources.all()) != 1)} at {address}  (Ctrl-C ends it)", flush=True
    )
    threading.Thread(target=lambda: sources.all() and sources.all()[0].summary(), daemon=True).start()  # read ahead
    if not (args.serve or args.no_open):
        local = address.replace(shown[0], "127.0.0.1", 1) if anywhere else address
        threading.Timer(0.5, webbrowser.open, [local]).start()
    config = uvicorn.Config(
        make_app(sources, access),
        log_level="error",
        access_log=False,  # it would keep the token
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
        limit_concurrency=256,
        h11_max_incomplete_event_size=16_384,
    )
    try:
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        sources.close()
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"--listen {text}: give HOST:PORT, as {LISTEN}")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(file: Path) -> str:
    from shoal.window.guard import SHORTEST

    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the token in {file}: {error}") from None
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"the token in {file} must have {SHORTEST} characters or more: openssl rand -hex 16 > {file}")
    return token


def _bound(host: str, port: int, other: bool) -> socket.socket:
    """A socket that listens there; if it is taken and `other` will do, on another port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for attempt in (port, 0) if other else (port,):
        bound = socket.socket(family, socket.SOCK_STREAM)
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, attempt))
            bound.listen()  # who comes before the server is ready waits
            return bound
        except OSError as error:
            bound.close()
            reason = error.strerror or str(error)
    raise UserError(f"cannot listen at {host}:{port}: {reason}; choose another with --listen")
