"""A process that compiles and renders templates for another one (render_pool.py), without holding that one's lock.

Secrets and the database are out of its reach, and apart.py limits its memory and time. It reads questions from a
socket, its standard input, and exits after the other end closes, even by a crash. Questions are JSON, like the stored
fields of a letter. An answer is a kind, the steps used, and up to three texts.
"""

import json
import os
import resource
import signal
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from campaigns.texts import templates
from campaigns.texts.templates import Budget, Content, OverBudget, Source, StepMeter, TemplateError
from vendors.said import to_data

SECONDS = 10  # of processor time, for one question
NICE = 5  # cheap requests and the database come first
KEPT = 32  # compiled templates; must exceed the templates of one letter, or each letter would compile them all again
# Kinds of answers.
DRAW, LETTER, FAULT, OVER, FACTS = b"D", b"L", b"F", b"O", b"C"
HEAD = struct.Struct(">cqIII")  # kind, steps used, bytes of each text
LENGTH = struct.Struct(">I")


def receive_exactly(line: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes. Raises EOFError, and the socket's errors."""
    whole = bytearray(size)
    view, at = memoryview(whole), 0
    while at < size:
        got = line.recv_into(view[at:])
        if not got:
            raise EOFError
        at += got
    return bytes(whole)


def facts_of(content: Content) -> dict[str, Any]:
    """Return everything about a Content except its compiled templates, ready for JSON."""
    names = {name: sorted(getattr(content, name)) for name in ("fields", "optional", "required", "subject_fields")}
    return {**names, "safe": content.safe, "given": sorted(content.given), "splices": content.splices}


class _AskingBudget(Budget):
    """A budget that asks the other process for more steps."""

    def __init__(self, line: socket.socket, left: int) -> None:
        self._line, self._given, self.left = line, left, left

    @property
    def used(self) -> int:
        return self._given - self.left

    def draw_steps(self) -> int:
        _send_answer(self._line, DRAW, self.used)
        granted = _read_question(self._line)
        if granted is None:
            raise OverBudget
        self._given += granted
        return int(granted)


class TemplateServer:
    """Answers questions about templates. A request names each template it has sent by a number."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._sources: dict[int, Source] = {}
        self._compiled: OrderedDict[Source, tuple[Content, int]] = OrderedDict()

    def serve_questions(self) -> None:
        """Answer until the other process closes the socket or ends; then raise EOFError."""
        while True:
            what, number, given, left = _read_question(self._line)
            if what == "source":
                self._take_source(number, given)
            else:
                _limit_time()
                self._make_answer(what, self._sources[number], given, _AskingBudget(self._line, left))

    def _take_source(self, number: int, given: list[Any]) -> None:
        if not number:
            self._sources.clear()  # another request begins
        subject, body, html, text, pairs = given
        self._sources[number] = Source(subject, body, html, text, tuple((name, value) for name, value in pairs))

    def _make_answer(self, what: str, source: Source, values: Any, budget: _AskingBudget) -> None:
        try:
            if what == "compile":
                facts = json.dumps(facts_of(self._compiled_content(source, budget)))
                _send_answer(self._line, FACTS, budget.used, [facts])
            else:
                made = self._compiled_content(source).render_here(values, StepMeter(budget))
                _send_answer(self._line, LETTER, budget.used, made)
        except TemplateError as why:
            _send_answer(self._line, FAULT, budget.used, [why.whole, json.dumps(to_data(why.whole))])
        except OverBudget:
            _send_answer(self._line, OVER, budget.used)

    def _compiled_content(self, source: Source, budget: Budget | None = None) -> Content:
        """Compile a template, or find it compiled; the budget pays in either case."""
        if source not in self._compiled:
            counting = _CountingBudget(budget)
            made = templates.compile_here(source, counting)
            self._compiled[source] = made, counting.counted
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        elif budget:
            budget.spend_budget(self._compiled[source][1])
        self._compiled.move_to_end(source)
        return self._compiled[source][0]


class _CountingBudget(Budget):
    """Counts the steps that compiling takes, and also takes them from another budget, if there is one."""

    def __init__(self, other: Budget | None) -> None:
        self._other, self.counted = other, 0

    def spend_budget(self, steps: int) -> None:
        self.counted += steps
        if self._other:
            self._other.spend_budget(steps)


def _read_question(line: socket.socket) -> Any:
    (size,) = LENGTH.unpack(receive_exactly(line, LENGTH.size))
    return json.loads(receive_exactly(line, size))


def _send_answer(line: socket.socket, kind: bytes, used: int, texts: Iterable[str] = ()) -> None:
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    sizes = [*map(len, parts), 0, 0, 0][:3]
    line.sendall(b"".join((HEAD.pack(kind, used, *sizes), *parts)))


def _limit_time() -> None:
    """Limit the processor time of this question; at the limit the system kills this process."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    soon = int(time.process_time()) + 1 + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soon if most == resource.RLIM_INFINITY else min(soon, most), most))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process, too; it ends with the server
    os.nice(NICE)
    try:
        TemplateServer(socket.socket(fileno=0)).serve_questions()
    except (EOFError, ConnectionError):
        return  # the other process has ended
