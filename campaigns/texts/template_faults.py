"""Plain words for faults of templates: those of people who never met the template language, and of word processors.

Jinja names its own tokens, in English. A fault without a row here keeps Jinja's words.
"""

import re

from vendors.said import Said, gettext_noop

LONGEST = 300  # characters of a fault that is explained; a longer one quotes a name that nobody meant
NOT_CLOSED = gettext_noop("{%% %(block)s %%} is open: {%% end%(block)s %%} is missing")
NO_FIELD = gettext_noop("a field's name is missing")
FAULTS = tuple(
    (re.compile(pattern, re.DOTALL), form)
    for pattern, form in (
        (r"Missing end of comment tag", gettext_noop("{# begins a comment, and no #} ends it")),
        (
            r"unexpected char '(?P<sign>[“”„‟«»‘’‚‛`´])'.*",
            gettext_noop("%(sign)s is no straight quote: type ' or \""),
        ),
        (
            r"unexpected char '(?P<sign>[‐‑‒–—−])'.*",
            gettext_noop("%(sign)s is no part of a field's name: type _ in its place"),
        ),
        (r"unexpected char \"'\".*", gettext_noop("a quote is opened and not closed")),
        (
            r"unexpected char '(?P<sign>.+)' at \d+",
            gettext_noop("%(sign)s is no part of a template's tag"),
        ),
        (
            r"expected token 'end of print statement', got '(?P<word>\w+)'",
            gettext_noop("%(word)s stands behind a field's name: a field has one word, with _ for each blank"),
        ),
        (r"expected token 'end of statement block', got '='", gettext_noop("two values are compared by ==")),
        (
            r"expected token ':', got '}'",
            gettext_noop("a field stands between two braces on each side, as in {{ name }}"),
        ),
        (r"unexpected '}', expected '(?P<sign>.)'", gettext_noop("%(sign)s is missing")),
        (r"unexpected '}'|unexpected end of template, .*", gettext_noop("{{ is open: }} is missing")),
        (r"No filter named '(?P<name>.+?)'\.", gettext_noop("there is no filter %(name)s")),
        (r"No test named '(?P<name>.+?)'\.", gettext_noop("there is no test %(name)s")),
        (
            r"Encountered unknown tag '(?P<tag>.+?)'\..*The innermost block .* is '(?P<block>.+)'\.",
            gettext_noop("{%% %(tag)s %%} cannot stand here: {%% %(block)s %%} is still open"),
        ),
        (
            r"Encountered unknown tag '(?P<tag>end.+|else|elif)'\..*",
            gettext_noop("{%% %(tag)s %%} ends nothing: no such part is open"),
        ),
        (r"Encountered unknown tag '(?P<tag>.+?)'\..*", gettext_noop("there is no tag {%% %(tag)s %%}")),
        (r"Unexpected end of template\..*The innermost block .* is '(?P<block>.+)'\.", NOT_CLOSED),
        (r"Missing end of (?P<block>raw) directive", NOT_CLOSED),
        (r"Expected an expression, got 'end of .*'|unexpected 'end of .*'", NO_FIELD),
    )
)


def explain_fault(fault: str) -> str:
    """Return a syntax error of Jinja in plain words, or as it stands."""
    if len(fault) <= LONGEST:
        for pattern, form in FAULTS:
            if found := pattern.fullmatch(fault):
                return Said(form, **found.groupdict())
    return fault
