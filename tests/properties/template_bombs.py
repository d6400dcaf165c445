"""Looks for templates that cost much more than the steps that they are charged: a grammar, and bombs that were found.

A program of its own, whose process is bounded, so that a bomb ends it and nothing else:

    python -m tests.properties.template_bombs EXAMPLES [SEED]

Each example is compiled and rendered, errors included. Deterministic are the bytes that were allocated at once, the
length of the error, and the calls that Python made; the processor's time has a generous limit beside them. It ends with
1 at the first example beyond a limit, and says which one it was.
"""

import re
import resource
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st

from campaigns.texts import templates
from campaigns.texts.templates import MAX_STEPS, Budget, TemplateError

MEMORY = 2_000_000_000  # bytes of the process
PEAK = 60_000_000  # bytes that one message may allocate at once
CALLS = 12 * MAX_STEPS  # of Python functions that rendering one message may make
PROCESSOR = 2.0  # seconds for compiling and rendering one message, by which a step is forty times its price
LONGEST_ERROR = 300
LONGEST = 300_000  # characters that are repeated

NAMES = [f"f{number}" for number in range(12)]
FIELDS: dict[str, Any] = {
    "f0": "a" * 100_000,
    "f1": "\U0001f600" * 50_000,
    "f2": [0] * 30_000,
    "f3": [{"a": "x" * 10, "b": [1, 2, 3]}] * 2_000,
    "f4": {f"k{number}": "v" for number in range(8_000)},
    "f5": "0." * 49_000 + "0",
    "f6": "9" * 4_000,
    "f7": [0.123456789012345 + number for number in range(5_000)],
    "f8": "<&'\">" * 20_000,
    "f9": {"a": {"b": {"c": "deep" * 20_000}}},
    "f10": 7,
    "f11": ["a " * 5_000] * 10,
}
SMALL = {"s0": "Ann", "s1": 3, "s2": [1, "b", None], "s3": {"a": "b"}, "s4": None, "s5": "", "s6": 1e308, "s7": -1}
ENVIRONMENT = templates._make_environment(False)
FILTERS = sorted(name for name in ENVIRONMENT.filters if " " not in name)
TESTS = sorted(name for name in ENVIRONMENT.tests if name.isidentifier())
VARIABLES = ["v0", "v1", "v2", "v3"]
ARGUMENTS = ["attribute", "reverse", "default", "base", "chars", "precision", "method", "end", "length", "by", "locale"]

short_texts = st.sampled_from(["''", "'a'", "'0.0'", "'a.b,a'", "'<'", "'%'", "'key'", "'floor'", "'yyyy'", "'EUR'"])
numbers = st.sampled_from(["0", "1", "-1", "16", "36", "100000", "1e308", "0xff", "999999999999999999999", "0.1"])
long_texts = st.builds(
    lambda sign, many: "'" + sign * many + "'", st.sampled_from("aé0 ."), st.sampled_from([200, 90_000])
)
names = st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from([*SMALL, *VARIABLES, "loop", "n"]))
atoms = st.one_of(names, names, names, short_texts, numbers, long_texts, st.sampled_from(["none", "true", "[]", "()"]))


def _times(one: str, many: int) -> list[str]:
    """So often, but in all not much longer than a template may be."""
    return [one] * max(1, min(many, LONGEST // max(1, len(one))))


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arguments = st.lists(
        st.one_of(inner, inner, st.builds("{}={}".format, st.sampled_from(ARGUMENTS), inner)), max_size=3
    ).map(lambda found: ",".join(sorted(found, key=lambda one: "=" in one[:12])))
    repeated = st.builds(lambda one, many: ",".join(_times(one, many)), inner, st.sampled_from([1, 2, 8, 200]))
    return st.one_of(
        st.builds("{}|{}".format, inner, st.sampled_from(FILTERS)),
        st.builds("{}|{}({})".format, inner, st.sampled_from(FILTERS), arguments),
        st.builds("{}|{}|{}".format, inner, st.sampled_from(FILTERS), st.sampled_from(FILTERS)),
        st.builds("({} is {})".format, inner, st.sampled_from(TESTS)),
        st.builds("({} is {}({}))".format, inner, st.sampled_from(TESTS), inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("({})[{}:{}:{}]".format, inner, inner, inner, inner),
        st.builds("({}).{}".format, inner, st.sampled_from(["a", "b", "length", "index", "nextitem", "x" * 300])),
        st.builds(
            "({})".format, st.builds(lambda one, many: "~".join(_times(one, many)), inner, st.sampled_from([2, 9, 150]))
        ),
        st.builds("({} {} {})".format, inner, st.sampled_from(["<", "==", "!=", "in", "not in", ">="]), inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("(not {})".format, inner),
        st.builds("[{}]".format, repeated),
        st.builds("({},)".format, repeated),
    )


expressions = st.recursive(atoms, _compound, max_leaves=8)


def _statements(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=3).map("".join)
    return st.one_of(
        st.builds("{{% for n in {} %}}{}{{% endfor %}}".format, expressions, body),
        st.builds(
            "{{% for n in {} if {} %}}{}{{% else %}}{}{{% endfor %}}".format, expressions, expressions, body, body
        ),
        st.builds("{{% if {} %}}{}{{% else %}}{}{{% endif %}}".format, expressions, body, body),
        st.builds(lambda one, many: "".join(_times(one, many)), body, st.sampled_from([2, 20, 150])),
    )


GROWING = """[V,V,V,V,V,V,V,V]; (V,V,V,V); V ~ V ~ V; V|string; V|list; V|urlencode; V|e|string; [V|list,V]; V|join(V)
    V|replace('a','aaaa'); [V]|join(V|string); V|list|string; V|items; V|title ~ V""".replace("\n", ";").split(";")
grown = st.builds(  # a value made of itself, again and again
    lambda variable, made, many: f"{{% set {variable} = {made.replace('V', variable)} %}}" * many,
    st.sampled_from(VARIABLES),
    st.sampled_from(GROWING),
    st.sampled_from([2, 5, 7, 9, 30]),
)
simple = st.one_of(
    st.builds("{{{{ {} }}}}".format, expressions),
    st.builds("{{% set {} = {} %}}".format, st.sampled_from(VARIABLES), expressions),
    grown,
    st.sampled_from(["text", "x" * 5_000, "{# #}"]),
)
pieces = st.recursive(simple, _statements, max_leaves=6)
sources = st.lists(pieces, min_size=1, max_size=6).map("".join)


def _levels(made: str, many: int, used: str) -> str:
    first = made.replace("V", "s0")
    return f"{{% set v0 = {first} %}}" + f"{{% set v0 = {made.replace('V', 'v0')} %}}" * (many - 1) + used


EIGHT = "[V,V,V,V,V,V,V,V]"
KNOWN = [  # found by reviewers, and by this program
    *(_levels(EIGHT, many, f"{{{{ {used} }}}}") for many in (7, 8) for used in (
        "s3[v0]", "f2|sort(attribute=v0)", "f2|unique(attribute=v0)", "s0|int(v0)", "s0|default(v0, true)|e",
        "v0|length", "s0|trim(v0)", "s0|round(v0)", "s1 is divisibleby(v0)", "v0 == v0", "s3[v0|string]",
        "s0|truncate(v0)", "s0|money(v0)", "s0|date(v0)", "s0|number(v0)", "f4|dictsort(by=v0)", "s0|replace(v0, v0)",
    )),
    _levels("(V,V,V,V,V,V,V,V)", 8, "{{ s3[v0] }}"),
    _levels("(V,V,V,V,V,V,V,V)", 8, "{% if v0 in s3 %}{% endif %}"),
    "{{f0}}" * 1_600, "{{f2}}" * 1_600, "{{f1}}" * 1_600, "{{f7}}" * 1_600, "{{f8}}" * 1_600,
    "{{ f0|trim(f0) }}", "{{ f2|sort(attribute=f5)|length }}", "{{ f2|unique(attribute=f5)|length }}",
    "{% if f6|int(0,16) is divisibleby(f6|int(1,16)) %}{% endif %}",
    "{{ 0x" + "f" * 90_000 + " }}", "{{ " + "9" * 90_000 + " }}", "{{ " + "a" * 900_000 + " }}",
    "{% for n in f2 %}{% if s0 ~ '" + "y" * 900_000 + "' %}{% endif %}{% endfor %}",
    "{% for n in f2 %}{% if s0 in '" + "y" * 900_000 + "' %}{% endif %}{% endfor %}",
    "{{x" + "|upper" * 90 + "}}", "{{x" + "|upper" * 2_300 + "}}", "{{" + "(x~" * 90 + "x" + ")" * 90 + "}}",
    "{%for n in s2%}" * 8 + "".join(f"{{{{v{number}|e}}}}" for number in range(900)) + "{%endfor%}" * 8,
    "{{x" + "<x" * 2_300 + "}}", "{{ " + "[" * 1_200 + "]" * 1_200 + " }}", "{%if x%}" * 1_200,
    "{{ f4[v] }}", "{{ (loop)[f0] }}", "{{ f0|int(0, 2) }}", "{{ f6|int|string|length }}",
]  # fmt: skip
known = st.integers(0, len(KNOWN) - 1).map(KNOWN.__getitem__)
mutated = st.builds(  # a part of a bomb replaced by another expression
    lambda source, at, made: re.sub(
        r"f\d+|s\d|v0(?= \}\}|\])", lambda found: made if at == found[0] else found[0], source
    ),
    known,
    st.sampled_from([*NAMES, *SMALL, "v0"]),
    expressions,
)


class Purse(Budget):
    """Counts the steps."""

    def __init__(self) -> None:
        self.drawn = 0

    def draw_steps(self) -> int:
        self.drawn += 1_000
        return 1_000


class TooDear(Exception):
    """An example is beyond a limit."""


def calls_of(run: Callable[[], None]) -> int:
    """How many calls of functions `run` makes."""
    found = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def _made(source: str, html: bool, purse: Purse) -> tuple[str, int]:
    """The error, and how many calls rendering makes."""
    try:
        content = templates.compile_templates("", source, html, purse)
        return "", calls_of(lambda: content.render_letter("ann@b.example", {**FIELDS, **SMALL}, purse))
    except TemplateError as why:
        return str(why), 0


def measure(source: str, html: bool) -> dict[str, Any]:
    """What it costs to compile and render it: once for the processor's time, once for bytes. Raises TooDear."""
    purse, began = Purse(), time.process_time()
    with suppress(TemplateError):
        templates.compile_templates("", source, html, purse).render_letter("ann@b.example", {**FIELDS, **SMALL}, purse)
    facts: dict[str, Any] = {"seconds": time.process_time() - began, "steps": purse.drawn}
    _judge(facts, "seconds", PROCESSOR)
    tracemalloc.start()
    error, facts["calls"] = _made(source, html, Purse())
    facts["peak"] = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    _judge(facts, "peak", PEAK)
    _judge(facts, "calls", CALLS)
    if len(error) > LONGEST_ERROR:
        raise TooDear(f"an error of {len(error)} characters")
    return facts


def _judge(facts: dict[str, Any], name: str, most: float) -> None:
    if facts[name] > most:
        raise TooDear(f"{name}: {facts}")


def search(examples: int, seeded: int) -> None:
    """Raises TooDear, or another error of the product, with the example."""
    worst = {"seconds": 0.0, "peak": 0}

    @seed(seeded)
    @settings(
        max_examples=examples, database=None, deadline=None, phases=[Phase.generate, Phase.target, Phase.shrink],
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    @given(st.one_of(sources, sources, sources, mutated), st.booleans())
    def search_for_bombs(source: str, html: bool) -> None:
        facts = measure(source, html)
        target(facts["seconds"] / (facts["steps"] + 4_000), label="seconds a step")
        target(float(facts["peak"]), label="bytes")
        for name in worst:
            if facts[name] > worst[name]:
                worst[name] = facts[name]
                print(f"{name}: {facts} {source[:300]!r}", flush=True)

    search_for_bombs()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    examples, seeded = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for number, source in enumerate(KNOWN):
        try:
            measure(source, html=number % 2 == 0)
        except Exception as why:
            sys.exit(f"a known bomb: {type(why).__name__} {why}: {source[:200]!r}")
    if examples:
        search(examples, seeded)


if __name__ == "__main__":
    main()
