"""One form for all letters of a call, with each letter's own values as variables of its recipient.

This suits services whose batch is one mail to many recipients: a field of the form says `%recipient.text%`, and an
object beside it gives each recipient's text. Letters that differ otherwise, such as in their files, go in separate
calls.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from vendors.adapters.base import Letter
from vendors.described.bodies import FilledValues, escape_part, file_parts
from vendors.described.json_bodies import MISSING, text_maker
from vendors.described.placeholders import value_as_text
from vendors.described.schema import RequestKeys, SharedFormKeys


@dataclass(frozen=True, slots=True)
class FormLetter:
    """One letter's part of a form. `shared`: names and values that must be equal for all letters of a call.

    `own`: the names of its own values. `variables`: those values as a member of a JSON object.
    """

    letter: Letter
    shared: tuple[tuple[str, str], ...]
    own: tuple[str, ...]
    variables: bytes

    @property
    def sharing_key(self) -> tuple[Any, ...]:
        """Return a key that is equal for letters that can go in one call."""
        return self.shared, self.own, tuple(map(id, self.letter.attachments))


class SharedForm:
    """Writes shared forms. An adapter makes one and keeps it."""

    def __init__(self, keys: RequestKeys, of: SharedFormKeys, values: FilledValues) -> None:
        self._of = of
        self._multipart = keys.body == "multipart"
        makers = {name: text_maker(value, values) for name, value in keys.content.items()}
        self._shared = {name: make for name, make in makers.items() if name not in of.own}
        self._own = {name: make for name, make in makers.items() if name in of.own}
        boundary = secrets.token_hex(16)
        self.content_type = "application/x-www-form-urlencoded"
        if self._multipart:
            self.content_type = f"multipart/form-data; boundary={boundary}"
        self._begin = f"--{boundary}\r\n".encode()
        self._end = f"--{boundary}--\r\n".encode()
        self._files: Callable[[Letter], bytes] | None = None
        if keys.files:
            self._files = file_parts(self._begin, keys.files, keys.inline)

    def read(self, letter: Letter) -> FormLetter:
        """Return the letter's part of the form. Raises ValueError or TypeError if it cannot be sent."""
        own = dict(_made_values(self._own, letter))
        if self._of.headers is not None:
            own |= {f"{self._of.headers}{name}": value for name, value in letter.headers}
        variables = orjson.dumps({letter.recipient: own})[1:-1]
        return FormLetter(letter, tuple(_made_values(self._shared, letter)), tuple(own), variables)

    def calls(self, letters: Sequence[FormLetter]) -> list[list[int]]:
        """Group letters with equal keys, never two of one recipient."""
        times: dict[tuple[Any, ...], int] = {}
        found: dict[tuple[Any, ...], list[int]] = {}
        for position, one in enumerate(letters):
            alike = one.sharing_key
            whom = (alike, one.letter.recipient.lower())
            times[whom] = times.get(whom, 0) + 1
            found.setdefault((alike, times[whom]), []).append(position)
        return list(found.values())

    def body(self, letters: Sequence[FormLetter]) -> bytes:
        """Return the body for letters with equal keys."""
        first = letters[0]
        fields = [*first.shared, *((name, self._of.variable.replace("NAME", name)) for name in first.own)]
        fields += [(self._of.to, one.letter.recipient) for one in letters]
        variables = b"{" + b",".join([one.variables for one in letters]) + b"}"
        if not self._multipart:
            return urlencode([*fields, (self._of.variables, variables)]).encode()
        parts = [self._make_part(name, value.encode()) for name, value in fields]
        parts.append(self._make_part(self._of.variables, variables))
        parts += [self._files(first.letter)] if self._files else []
        return b"".join([*parts, self._end])

    def _make_part(self, name: str, value: bytes) -> bytes:
        head = b'Content-Disposition: form-data; name="%b"\r\n\r\n' % escape_part(name)
        return b"".join([self._begin, head, value, b"\r\n"])


def _made_values(makers: Mapping[str, Any], letter: Letter) -> Iterator[tuple[str, str]]:
    for name, make in makers.items():
        if (value := make(letter) if callable(make) else make) is not MISSING:
            yield name, value_as_text(value)
