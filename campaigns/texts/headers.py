"""Headers of a campaign whose values show fields: compiled once, rendered and checked for each recipient.

A value is a template, like a subject. If it renders empty for a recipient, the letter goes without the header.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from campaigns.texts import templates
from campaigns.texts.templates import (
    CONTROL_IN_SUBJECT,
    LINE_BREAK_IN_SUBJECT,
    PARTS,
    TOKEN,
    Budget,
    Content,
    TemplateError,
    Values,
)
from vendors.adapters import mime
from vendors.said import Said, gettext_noop

LONGEST_HEADER = 1_000  # characters of a value
SHOWS = re.compile(r"\{[{%#]")
OF_HEADER = {
    PARTS["subject"].fault: gettext_noop("the header %(name)s: %(why)s"),
    PARTS["subject"].at_line: gettext_noop("the header %(name)s, line %(count)s: %(why)s"),
    PARTS["subject"].too_deep: gettext_noop("the header %(name)s is nested too deeply"),
    PARTS["subject"].too_long: gettext_noop("the header %(name)s is longer than %(most)s characters"),
    LINE_BREAK_IN_SUBJECT.form: gettext_noop("the header %(name)s has a line break in it"),
    CONTROL_IN_SUBJECT.form: gettext_noop("the header %(name)s has a control sign in it"),
}
Headers = Sequence[tuple[str, str]]
FileFaults = Callable[[Values], Iterator[str]]


class HeaderTemplates:
    """A campaign's headers, if at least one shows fields. steps: the cost of compiling. Raises TemplateError."""

    def __init__(self, headers: Headers) -> None:
        self._values = [
            (name, value, compile_header(name, value) if SHOWS.search(value) else None) for name, value in headers
        ]
        made = [content for *_, content in self._values if content]
        self.fields = frozenset().union(*(one.fields for one in made))
        self.required = frozenset().union(*(one.required for one in made))
        self.optional = frozenset().union(*(one.optional for one in made))
        self.plain = all(one.is_plain for one in made)
        self.steps = TOKEN * sum(value.count("{") for _, value, content in self._values if content)

    def render_headers(self, recipient: str, params: Values, budget: Budget | None = None) -> Headers:
        """Return the headers of one recipient. Raises TemplateError, and OverBudget if there is a budget."""
        found = []
        for name, value, content in self._values:
            if content:
                try:
                    value = content.render_letter(recipient, params, budget)[0].strip()
                except TemplateError as error:
                    raise _name_header_fault(name, error) from error
            if value:
                check_value(name, value)
                found.append((name, value))
        return found

    def faults(self, recipient: str, fields: Values, budget: Budget | None = None) -> Iterator[str]:
        """Yield the faults of a recipient's headers, as sentences; missing fields are reported elsewhere."""
        if self.fields <= fields.keys():
            try:
                self.render_headers(recipient, fields, budget)
            except TemplateError as error:
                yield str(error)


def check_value(name: str, value: str) -> None:
    """Raise TemplateError if a header cannot have this value."""
    if len(value) > LONGEST_HEADER:
        raise TemplateError(
            Said("the header %(name)s has more than %(most)s characters", name=name, most=LONGEST_HEADER)
        )
    try:
        mime.header_line(name, value)
    except ValueError as error:
        raise TemplateError(str(error)) from error


@lru_cache(maxsize=1_000)
def compile_header(name: str, value: str) -> Content:
    """Return a header value compiled as the subject of a Content. Raises TemplateError."""
    check_value(name, "-")
    try:
        return templates.compile_templates(value, "", html=False)
    except TemplateError as error:
        raise _name_header_fault(name, error) from error


def _name_header_fault(name: str, error: TemplateError) -> TemplateError:
    """Return the fault of a header that was checked as a subject, worded for this header."""
    why = error.whole
    if isinstance(why, Said) and why.form in OF_HEADER:
        why = Said(OF_HEADER[why.form], **why.values, name=name)
    return TemplateError(why)


def header_templates(headers: Headers | None) -> HeaderTemplates | None:
    """Return the compiled headers, or None if no header shows a field. Raises TemplateError."""
    return HeaderTemplates(headers) if headers and any(SHOWS.search(value) for _, value in headers) else None


def check_beside_body(content: Content, headers: HeaderTemplates | None, files: FileFaults | None) -> Content:
    """Return the content with the headers' fields added, and checks of each recipient's headers and files."""
    if headers is None:
        return replace(content, further=(lambda _, fields, budget: files(fields)) if files else None)

    def find_beside_faults(recipient: str, fields: Values, budget: Budget | None) -> Iterator[str]:
        yield from headers.faults(recipient, fields, budget)
        yield from files(fields) if files else ()

    needed = content.fields | headers.fields
    optional = (content.optional | headers.optional) - needed
    required = content.required | headers.required
    safe = content.safe if headers.plain else -1
    return replace(content, fields=needed, optional=optional, required=required, safe=safe, further=find_beside_faults)
