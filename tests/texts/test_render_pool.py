"""Other processes make letters that take long: as this one would, within limits, and never without an end."""

import os
import re
import signal
import socket
import threading
from pathlib import Path

import pytest

from campaigns.texts import render_pool, render_process, templates
from campaigns.texts.apart import ProcessLost
from campaigns.texts.parts import MOST_HEADERS
from campaigns.texts.render_pool import RenderPool, RequestRenderer
from campaigns.texts.templates import MAX_STEPS, Budget, OverBudget, Source, TemplateError
from tests.campaigns.elsewhere import rendering_elsewhere
from tests.properties import template_bombs
from tests.waiting import wait_until

pytestmark = pytest.mark.slow("processes")

LOOPS = "{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}x"
FIELDS = {**template_bombs.FIELDS, **template_bombs.SMALL, "n": "x\ny", "u": "\ud800", "d": {"b": 1, "a": [1.5, None]}}
SOURCES = [
    *template_bombs.KNOWN,
    "Dear {{ s0 }}{% if s1 > 2 %}, {{ s1|money('EUR', 'de') }}{% endif %} {{ s2 }} {{ d }} {{ f8|upper|truncate(40) }}",
    "{{ u }}{{ d|dictsort }}{{ s6 }}{{ s7|abs }}",
    "{{ s0|date }}",
    "{{ nothing.more }}",
    "{{ s0 ",
    "{% set a = 1 %}{{ a.b }}",
    "{{ s0.__class__ }}",
    "{{ [].append }}{% include 'x' %}",
    "{{ ''|attr('__class__') }}",
    "{{ s0() }}",
    "{% for n in f2 %}{{ n }}{% endfor %}",
    "{{ s0 }}{{ f0 }}",
    LOOPS.replace("l", "f2"),
    "",
]


class Purse(Budget):
    """Counts what is drawn; most: grants no more than that."""

    def __init__(self, most=10**9):
        self.drawn, self.most = 0, most

    def draw_steps(self):
        return self.granted(1_000)

    def draw_portion(self):
        return self.granted(7_000)

    def granted(self, steps):
        if self.drawn >= self.most:
            raise OverBudget("no more")
        self.drawn += steps
        return steps

    @property
    def used(self):
        return self.drawn - self.left


def facts(content):
    names = ("fields", "optional", "required", "subject_fields", "safe", "given", "is_plain", "is_spliced")
    return {name: getattr(content, name) for name in names}


def made(subject, body, html, text, most=10**9):
    """All that can be seen of a letter: what is known of its templates, its texts or its fault, and its price."""
    purse, seen = Purse(most), []
    try:
        content = templates.compile_templates(
            subject, body, html, purse, text, {"unsubscribe_url": "https://x.example/"}
        )
        seen.append(facts(content))
        seen.append(content.render_letter("ann@b.example", FIELDS, purse))
    except (TemplateError, OverBudget) as why:
        seen += [type(why), str(why)]
    return [*seen, purse.used]


@pytest.fixture
def elsewhere(monkeypatch):
    with rendering_elsewhere(monkeypatch) as by:
        yield by


@pytest.fixture
def pool():
    one = RenderPool(1)
    yield one
    found = one._places.get_nowait()
    if found:
        found.end()


@pytest.mark.parametrize("html", [False, True])
def test_a_letter_is_the_same_wherever_it_is_made(html, elsewhere, monkeypatch):
    """Also if it is a bomb: facts, texts, sentences and steps."""
    cases = [("{{ n }}", "x", html, "")]
    for source in SOURCES:
        cases += [("Hi {{ s0 }}", source, html, ""), (source[:2_000], "{{ s0 }}", html, "{{ s1 }}")]
    there = [made(*case) for case in cases]
    assert elsewhere._process
    monkeypatch.setattr(templates, "renderer", None)
    for case, found in zip(cases, there, strict=True):
        assert found == made(*case), case[1][:300]


@pytest.mark.parametrize("most", [1, 5_000, 20_000])
def test_a_budget_ends_it_there_as_it_does_here(most, elsewhere):
    """It may be granted a portion more than here; the sentence is that of the budget."""
    purse, content = Purse(most), templates.compile_templates("", LOOPS, False)
    letters = (content.render_letter("ann@b.example", {"l": [0] * 100}, purse) for _ in range(4))
    with pytest.raises(OverBudget, match="no more"):
        list(letters)
    assert purse.drawn < most + 7_000
    purse.most = 10**9
    assert content.render_letter("ann@b.example", {"l": [0]}, purse)[1] == "x", "the process answers its next question"


def test_what_a_letter_takes_elsewhere_is_paid_for(elsewhere):
    purse = Purse()
    content = templates.compile_templates("", LOOPS, False, purse)
    before = purse.used
    with pytest.raises(TemplateError, match="more than 50,000 steps"):
        content.render_letter("ann@b.example", {"l": [0] * 300}, purse)
    assert MAX_STEPS <= purse.used - before < MAX_STEPS + 1_000


def test_compiling_is_paid_for_each_time(elsewhere):
    paid = []
    for _ in range(2):
        purse = Purse()
        templates.compile_templates("", LOOPS, False, purse)
        paid.append(purse.used)
    assert paid[0] == paid[1] > 0


def test_a_process_keeps_all_templates_of_a_letter():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = render_process.TemplateServer(theirs)
        texts = [f"{{% if a %}}{number}{{% endif %}}" for number in range(MOST_HEADERS + 1)]
        sources = [Source(text, "", False, "", ()) for text in texts]
        first = [server._compiled_content(source) for source in sources]
        kept = sum(server._compiled_content(source) is made for source, made in zip(sources, first, strict=True))
    assert kept == MOST_HEADERS + 1


@pytest.mark.parametrize("value", [{1, 2}, 10**5_000], ids=["set", "number"])
def test_what_json_has_not_is_rendered_here(value, elsewhere):
    content = templates.compile_templates("", "{% if s %}x{% endif %}", False)
    assert content.render_letter("ann@b.example", {"s": value})[1] == "x"


def test_what_takes_little_time_is_made_here(pool):
    """No process is started for letters that only show fields, for short ones, and for the first steps of a request."""
    by = RequestRenderer(pool)
    plain = templates.compile_here(Source("{{ a }}", "{{ b }}" * 40, False, "", ()))
    short = templates.compile_here(Source("{{ a }}", "{% if a %}{{ b }}{% endif %}", False, "", ()))
    long = templates.compile_here(Source("", LOOPS, False, "", ()))
    for _ in range(2_000):
        by.render_content(plain, {"a": "1", "b": "2"}, None)
        by.render_content(short, {"a": "1", "b": "2"}, None)
    assert by._process is None
    while by._process is None:
        by.render_content(long, {"l": [0] * 40}, None)
    assert render_pool.FIRST < by._taken < render_pool.FIRST + 5_000
    by.close()


def test_a_template_that_is_compiled_elsewhere_and_only_shows_fields_is_rendered_here(elsewhere):
    content = templates.compile_templates("Hi {{ a }}", "{{ a }}" * 200, True)
    assert elsewhere._process and content.is_spliced and not content.is_deferred
    elsewhere._process.end()
    assert content.render_letter("ann@b.example", {"a": "<"})[1] == "&lt;" * 200


def test_what_other_requests_will_render_is_compiled_here(elsewhere):
    content = templates.compile_templates("", LOOPS, False, is_kept=True)
    assert elsewhere._process is None and not content.is_deferred


def test_what_was_compiled_elsewhere_is_rendered_here_by_a_thread_without_a_renderer(elsewhere):
    content, found = templates.compile_templates("", LOOPS, True, text="{{ l }}"), []
    assert content.is_deferred
    thread = threading.Thread(target=lambda: found.append(content.render_letter("ann@b.example", {"l": [0]})))
    thread.start()
    thread.join()
    assert found == [("", "x", "[0]")]


def asked(by):
    """A dear question, in a thread of its own, and how it ended."""
    ended = []

    def ask():
        try:
            by.compile_content(Source("", LOOPS * 20, False, "", ()), None)
        except BaseException as why:
            ended.append(why)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, ended


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU])
def test_a_process_that_dies_is_an_error_and_another_one_takes_its_place(number, pool):
    by = RequestRenderer(pool)
    by.compile_content(Source("", LOOPS * 10, False, "", ()), None)
    pid = by._process.pid
    os.kill(pid, signal.SIGSTOP)
    thread, ended = asked(by)
    wait_until(lambda: by._is_asking, "it is asked")
    os.kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    thread.join()
    assert [type(why) for why in ended] == [ProcessLost] and "try again" in str(ended[0])
    by.close()
    other = RequestRenderer(pool)
    assert other.compile_content(Source("", LOOPS * 10, False, "", ()), None).is_deferred
    assert other._process.pid != pid
    other.close()


def test_a_process_that_died_while_nobody_needed_it_is_replaced_without_a_word(pool):
    by = RequestRenderer(pool)
    by.compile_content(Source("", LOOPS * 10, False, "", ()), None)
    process = by._process
    by.close()
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not process.is_alive, "it is dead")
    by = RequestRenderer(pool)
    assert by.compile_content(Source("", LOOPS * 10, False, "", ()), None).is_deferred
    by.close()


def test_a_silent_process_is_ended_at_the_deadline(pool):
    by = RequestRenderer(pool)
    by.compile_content(Source("", LOOPS * 10, False, "", ()), None)
    process = by._process
    os.kill(process.pid, signal.SIGSTOP)
    process._line.settimeout(0.05)
    with pytest.raises(ProcessLost):
        by.compile_content(Source("", LOOPS * 20, False, "", ()), None)
    by.close()
    assert not process.is_alive


def test_there_are_no_more_of_them_than_is_said():
    pool = RenderPool(1, seconds=0.05)
    first = pool.take_process()
    with pytest.raises(ProcessLost, match="busy"):
        pool.take_process()
    pool.give_process_back(first, is_sound=False)
    assert not first.is_alive


def test_one_that_cannot_be_started_leaves_its_place(pool, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(render_pool.apart.sys, "executable", "/nonexistent/python")
        with pytest.raises(ProcessLost, match="started"):
            pool.take_process()
    pool.give_process_back(pool.take_process(), is_sound=False)


def test_a_request_that_ends_amid_an_answer_leaves_it_to_nobody(pool):
    """Redis is away, as it is to count steps: the next request gets another process."""

    class Broken(Budget):
        def draw_portion(self):
            raise ConnectionError

    by = RequestRenderer(pool)
    source = Source("", LOOPS * 10, False, "", ())
    with pytest.raises(ConnectionError):
        by.compile_content(source, Broken())
    process = by._process
    by.close()
    assert not process.is_alive
    by = RequestRenderer(pool)
    assert by.compile_content(source, None).is_deferred
    by.close()


def test_one_serves_so_many_requests_and_no_more(pool, monkeypatch):
    monkeypatch.setattr(render_pool, "REQUESTS", 2)
    first = pool.take_process()
    pool.give_process_back(first, is_sound=True)
    assert pool.take_process() is first
    pool.give_process_back(first, is_sound=True)
    assert not first.is_alive


def test_it_has_limits_and_knows_no_secret(pool, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "known to nobody")
    by = RequestRenderer(pool)
    by.compile_content(Source("", LOOPS * 10, False, "", ()), None)
    proc = Path(f"/proc/{by._process.pid}")
    limits = (proc / "limits").read_text()
    assert re.search(rf"Max address space +{render_pool.apart.MEMORY} ", limits)
    assert re.search(r"Max cpu time +1\d ", limits)
    assert b"known to nobody" not in (proc / "environ").read_bytes()
    by.close()


def test_it_ends_when_this_process_closes_the_line_however_it_ends(pool):
    by = RequestRenderer(pool)
    by.compile_content(Source("", LOOPS * 10, False, "", ()), None)
    process = by._process
    process._line.close()  # as the system does at the end of a process
    assert process._process.wait(120) == 0
    by.close()
