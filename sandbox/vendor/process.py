"""The sandbox vendor as a process: options, announcement of its URLs, and shutdown."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvloop

from sandbox.vendor import settings
from sandbox.vendor.ledger import Ledger
from sandbox.vendor.server import Server


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--url-file", type=Path, help="its URL and its control URL, a line each, once it answers")
    parser.add_argument("--books", type=Path, help="its books, one JSON line for each call; read back at the start")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end with the process that started it")
    settings.add_options(parser)


def run(options: Mapping[str, Any], announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises ValueError for bad settings, OSError if port or books are in use."""
    uvloop.run(_serve(options, announce))


async def _serve(options: Mapping[str, Any], announce: Callable[[str], None]) -> None:
    ledger = Ledger(options["books"])
    server = Server(options["host"], options["port"], settings.from_options(options), ledger)
    _end_on_request(server.ended, options["until_stdin_closes"])
    await server.open()
    announce(f"Sandbox vendor at {server.url} (control: {server.control_url})")
    if options["url_file"]:
        _write_whole(options["url_file"], f"{server.url}\n{server.control_url}\n")
    await server.ended


def _end_on_request(ended: asyncio.Future[None], until_stdin_closes: bool) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    if until_stdin_closes:
        loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4096) else end())


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that readers see all of it or none."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)
