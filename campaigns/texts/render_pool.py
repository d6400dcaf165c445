"""Compiles and renders slow letters in other processes, so that a server's threads do not wait for them.

All threads of a process share Python's lock: rendering one request's letters would block every other request (decision
47). Cheap letters are rendered here, which is quicker. A letter has the same text, steps and faults wherever it is
rendered.
"""

import json
import queue
import socket
from functools import cached_property
from pathlib import Path
from typing import Any

from campaigns.texts import apart, templates
from campaigns.texts.apart import ProcessLost
from campaigns.texts.render_process import DRAW, FAULT, HEAD, LENGTH, OVER, receive_exactly
from campaigns.texts.templates import Budget, Content, OverBudget, Source, Splice, StepMeter, TemplateError, Values
from vendors.said import read

SECONDS = 60.0  # a process may be silent that long, on the clock; it works for a sixth of that at most (render_process)
REQUESTS = 200  # requests a process serves before it is replaced
FIRST = 12_000  # steps of a request rendered in this process: about three milliseconds
SHORT = 200  # letters with fewer steps do not count towards FIRST: asking another process would cost the same
ROOT = Path(__file__).resolve().parents[2]
CODE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from campaigns.texts import render_process as p; p.main()"
ENDED = "The process that makes the letters has ended; try again in a moment."
BUSY = "All processes that make letters are busy; try again in a moment."
NOT_STARTED = "No process that makes the letters can be started; try again in a moment."


class RenderProcess:
    """A render process, which serves one request at a time."""

    def __init__(self, seconds: float) -> None:
        """Start the process. Raises ProcessLost."""
        self._line, theirs = socket.socketpair()
        self._line.settimeout(seconds)
        try:
            with theirs:
                self._process = apart.start_apart(CODE, theirs)
        except OSError as error:
            self._line.close()
            raise ProcessLost(NOT_STARTED) from error
        self.pid, self.requests = self._process.pid, 0

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send_question(self, question: str) -> None:
        """Send a question, as JSON. Raises ProcessLost."""
        frame = question.encode()
        try:
            self._line.sendall(LENGTH.pack(len(frame)) + frame)
        except OSError as error:
            raise ProcessLost(ENDED) from error

    def receive_answer(self) -> tuple[bytes, int, list[str]]:
        """Receive an answer: its kind, the steps used, and texts. Raises ProcessLost."""
        try:
            kind, used, *sizes = HEAD.unpack(receive_exactly(self._line, HEAD.size))
            return kind, used, [receive_exactly(self._line, size).decode("utf-8", "surrogatepass") for size in sizes]
        except (OSError, EOFError) as error:
            raise ProcessLost(ENDED) from error

    def end(self) -> None:
        self._line.close()
        self._process.kill()
        self._process.wait()


class RenderPool:
    """A pool of at most `most` processes, started when first needed. Thread-safe.

    seconds: how long a process may be silent before it is killed.
    """

    def __init__(self, most: int, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        # None: no process has been started for this place
        self._places: queue.LifoQueue[RenderProcess | None] = queue.LifoQueue()
        for _ in range(most):
            self._places.put(None)

    def take_process(self) -> RenderProcess:
        """Return a process for one request. Raises ProcessLost."""
        try:
            found = self._places.get(timeout=self._seconds)
        except queue.Empty:
            raise ProcessLost(BUSY) from None
        try:
            if found and not found.is_alive:
                found.end()
                found = None
            found = found or RenderProcess(self._seconds)
        except BaseException:
            self._places.put(None)
            raise
        found.requests += 1
        return found

    def give_process_back(self, process: RenderProcess, is_sound: bool) -> None:
        """Put a process back into the pool.

        is_sound: it waits for its next question; if not, it is killed and replaced.
        """
        is_kept = is_sound and process.requests < REQUESTS
        if not is_kept:
            process.end()
        self._places.put(process if is_kept else None)


class RequestRenderer:
    """Compiles and renders for one request, in one thread: a `templates.Renderer`. Close it at the request's end."""

    def __init__(self, pool: RenderPool) -> None:
        self._pool = pool
        self._process: RenderProcess | None = None
        self._is_asking = False
        self._taken = 0  # steps taken in this process
        self._numbers: dict[Source, int] = {}  # numbers of the sources the process has been sent

    def compile_content(self, source: Source, budget: Budget | None) -> Content:
        """Compile here, or in another process if the templates are intricate.

        Raises TemplateError, OverBudget, ProcessLost.
        """
        if not templates.is_intricate(source.subject, source.body, source.text):
            return templates.compile_here(source, budget)
        (facts,) = self._ask_process("compile", source, "null", budget)[:1]
        return _content_of_facts(source, json.loads(facts))

    def render_content(self, content: Content, values: Values, budget: Budget | None) -> tuple[str, str, str]:
        """Render here, or in another process if the request has used many steps.

        Raises TemplateError, OverBudget, ProcessLost.
        """
        assert content.source is not None
        if content.is_spliced or (self._taken <= FIRST and not content.is_deferred):
            return self._render_here(content, values, budget)
        try:
            fields = json.dumps(values)
        except (TypeError, ValueError):  # not possible in JSON, for example a number of 5,000 digits
            return self._render_here(content, values, budget)
        subject, body, text = self._ask_process("render", content.source, fields, budget)
        return subject, body, text

    def close(self) -> None:
        """Give the process back to the pool."""
        if self._process:
            self._pool.give_process_back(self._process, is_sound=not self._is_asking)
            self._process = None

    def _render_here(self, content: Content, values: Values, budget: Budget | None) -> tuple[str, str, str]:
        meter = StepMeter(budget or templates.ENDLESS)
        try:
            return content.render_here(values, meter)
        finally:
            if meter.used > SHORT:
                self._taken += meter.used

    def _ask_process(self, what: str, source: Source, given: str, budget: Budget | None) -> list[str]:
        """Ask the process and return the texts of its answer. given: JSON.

        Raises TemplateError, OverBudget, ProcessLost.
        """
        payer = _PayingBudget(budget)
        if self._process is None:
            self._process = self._pool.take_process()
        self._is_asking = True  # stays true if no answer comes, so that no other request can get it
        if source not in self._numbers:
            self._numbers[source] = len(self._numbers)
            self._process.send_question(f'["source",{self._numbers[source]},{json.dumps(source)},0]')
        self._process.send_question(f'["{what}",{self._numbers[source]},{given},{payer.left}]')
        kind, used, texts = self._process.receive_answer()
        while kind == DRAW:
            self._process.send_question(payer.grant_steps())
            kind, used, texts = self._process.receive_answer()
        self._is_asking = False
        payer.settle_used(used)
        if payer.refusal:
            raise payer.refusal
        if kind == OVER:
            raise OverBudget
        if kind == FAULT:
            raise TemplateError(read(texts[0], json.loads(texts[1])))
        return texts


class _PayingBudget:
    """Pays for steps of another process from a request's budget. refusal: why no more were granted."""

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget or Budget()
        self.left = self._given = max(0, self._budget.left)
        self.refusal: OverBudget | None = None

    def grant_steps(self) -> str:
        """Return a grant of more steps, as JSON; null: the budget is spent."""
        try:
            granted = self._budget.draw_portion()
        except OverBudget as over:
            self.refusal = over
            return "null"
        self._given += granted
        return str(granted)

    def settle_used(self, used: int) -> None:
        self._budget.left = self._given - used


class _Deferred:
    """Recompiles here what another process has compiled, if it must be rendered in this process after all."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @cached_property
    def _compile_late(self) -> Content:
        return templates.compile_here(self._source)

    def subject(self, values: Values, meter: StepMeter) -> str:
        return self._compile_late._subject(values, meter)

    def body(self, values: Values, meter: StepMeter) -> str:
        return self._compile_late._body(values, meter)

    def text(self, values: Values, meter: StepMeter) -> str:
        made = self._compile_late._text
        return made(values, meter) if made else ""


def _content_of_facts(source: Source, facts: dict[str, Any]) -> Content:
    """Make a Content of the facts another process reports. Plain templates are spliced here."""
    late, given = _Deferred(source), dict(source.given)
    splices = tuple(Splice(*found) if found else None for found in facts["splices"])
    later = (late.subject, late.body, late.text)
    parts = [one.splice_renderer() if one else by for one, by in zip(splices, later, strict=False)]
    return Content(
        fields=frozenset(facts["fields"]),
        optional=frozenset(facts["optional"]),
        required=frozenset(facts["required"]),
        subject_fields=frozenset(facts["subject_fields"]),
        safe=facts["safe"],
        given={name: given[name] for name in facts["given"]},
        _subject=parts[0],
        _body=parts[1],
        _text=parts[2] if source.text else None,
        source=source,
        splices=splices,
        is_deferred=None in splices,
    )
