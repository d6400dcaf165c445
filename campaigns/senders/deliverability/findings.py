"""Findings about one aspect of deliverability, each with the DNS record that would fix it."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from vendors.said import Said, gettext_noop

OK = gettext_noop("ok")
MISSING = gettext_noop("missing")
WRONG = gettext_noop("wrong")
NO_ANSWER = gettext_noop("no answer")
"""The DNS did not say whether there is such a record."""
NOT_KNOWN = gettext_noop("not known")
"""Nothing that could be asked tells it; no fault."""

PRICED = gettext_noop("told")
"""It has a price that somebody may be ready to pay; no fault."""

BAD = frozenset({MISSING, WRONG})

_TAG = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*=\s*([^;]*?)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DnsEntry:
    """A record to enter in the DNS."""

    name: str
    type: str
    value: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", escape_for_terminal(self.value))

    def __str__(self) -> str:
        return f"{self.name} {self.type} {self.value}"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. about: its subject. enter: the record that fixes it, if one does.

    about and sentence are Saids where they are the program's own words.
    """

    about: str
    status: str
    sentence: str
    enter: DnsEntry | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", escape_for_terminal(self.sentence))

    def finding_facts(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "status": self.status,
            "sentence": self.sentence,
            "enter": asdict(self.enter) if self.enter else None,
        }


def escape_for_terminal(text: str) -> str:
    """Escape characters that a terminal would obey: anybody may write anything into the DNS."""
    if isinstance(text, Said):
        return Said(
            text.form,
            **{name: escape_for_terminal(one) if isinstance(one, str) else one for name, one in text.values.items()},
        )
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def parse_tags(text: str) -> dict[str, str]:
    """Parse the tags of a DKIM or DMARC record, in order. Raises ValueError with the fault."""
    found: dict[str, str] = {}
    for part in text.rstrip("; \t").split(";"):
        match = _TAG.fullmatch(part)
        if not match:
            raise ValueError(Said(gettext_noop("%(part)s is not of the form tag=value"), part=repr(part.strip())))
        if match[1] in found:
            raise ValueError(Said(gettext_noop("it has the tag %(tag)s twice"), tag=match[1]))
        found[match[1]] = match[2]
    return found


def faults_of_domain(domain: str, faults: Iterable[str]) -> Said:
    """Return the faults of a name's record, after the name."""
    return Said("%(domain)s: %(faults)s", domain=domain, faults=Said.join_parts("; ", faults))


def join_with_and(values: Iterable[str]) -> str:
    """Join values as "A, B and C"."""
    *firsts, last = values
    return (
        Said(gettext_noop("%(firsts)s and %(last)s"), firsts=Said.join_parts(", ", firsts), last=last)
        if firsts
        else last
    )
