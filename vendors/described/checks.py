"""Checks of a description that go beyond its schema: placeholders, secrets, and keys that depend on each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from vendors.described import answers, report_checks
from vendors.described.placeholders import (
    ALPHABET,
    LISTS,
    OF_FILE,
    OF_HEADER,
    OF_LETTER,
    Parts,
    Placeholder,
    list_placeholders,
    split_text,
)
from vendors.described.positions import KeyFault, KeyPath
from vendors.described.schema import OURS, DescriptionKeys, Setting, Signature
from vendors.said import Said, gettext_noop

SIGNED = frozenset({"url", "body", "form", "fields", "timestamp", "token"})
DEEPEST, MOST_MEMBERS = 10, 300  # limits of a request body
HEADERS_OF_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding"}
)
NOT_THERE = (
    gettext_noop("{%(name)s} is not in [%(space)s], where there are: none"),
    gettext_noop("{%(name)s} is not in [%(space)s], where there are: %(known)s"),
)
AUTH_KEYS = {
    "basic": ("user", "password"),
    "bearer": ("token",),
    "header": ("name", "value"),
    "query": ("name", "value"),
}


class DescriptionCheck:
    """Checks of one description beyond its schema."""

    def __init__(self, keys: DescriptionKeys) -> None:
        self.keys = keys
        self.used: set[Placeholder] = set()
        self._of_secret: set[str] = set()
        self._nested: list[KeyPath] = []  # places of a table with each within a list

    def find_unusable(self) -> Iterator[KeyFault]:
        """Yield mistakes that make the description unusable. Stored descriptions are held to these only."""
        keys, request = self.keys, self.keys.request
        yield from self._check_settings()
        yield from self._check_url(("request", "url"), request.url)
        yield from self._check_auth()
        for name, text in request.headers.items():
            yield from self._check_text(("request", "headers", name), text)
        yield from self._check_content()
        if keys.sms and keys.sms.sender:
            yield from self._check_text(("sms", "sender"), keys.sms.sender, ("settings",), frozenset())
        if keys.lookup:
            yield from self._look_up_url(keys.lookup.url)
        if keys.reports:
            yield from self._check_signature(keys.reports.signature)

    def find_faults(self) -> Iterator[KeyFault]:
        """Yield all mistakes, including those in what the description promises."""
        keys = self.keys
        yield from self.find_unusable()
        for name in keys.request.headers:
            if name.lower() in HEADERS_OF_OURS:
                yield ("request", "headers", name), Said("is set by mailhub")
        if keys.sms and bool(keys.sms.gsm) != bool(keys.sms.unicode):
            yield ("sms",), Said("must name both alphabets, gsm and unicode, or neither")
        if bool(keys.address.country) != bool(keys.address.countries):
            yield ("address",), Said("names a column, country, and what may stand in it, countries, or none of them")
        if keys.request.body == "json":
            why = Said("is a list of its own, so it makes a list within the list: write each in place of the list")
            yield from ((path, why) for path in self._nested)
        yield from self._check_batch()
        yield from answers.find_answer_faults(keys)
        yield from self._check_promises()
        yield from report_checks.find_report_faults(keys)
        for name in keys.secret:
            if name not in self._of_secret:
                yield ("secret", name), Said("is used nowhere; a report's key is entered with vendor receipts")

    def _check_settings(self) -> Iterator[KeyFault]:
        for name, setting in self.keys.settings.items():
            path = ("settings", name)
            if name in OURS:
                yield (
                    path,
                    Said("is a setting of every described vendor; those are %(known)s", known=", ".join(sorted(OURS))),
                )
            if setting.default is not None:
                try:
                    setting_parser(setting)(setting.default)
                except ValueError as error:
                    yield (*path, "default"), str(error)

    def _check_url(self, path: KeyPath, text: str) -> Iterator[KeyFault]:
        yield from self._check_text(path, text, allowed=("settings",))
        try:
            place = urlsplit(text)
            host, _ = place.hostname or "", place.port
        except ValueError as error:
            yield path, Said("is not a URL: %(error)s", error=error)
            return
        if "@" in place.netloc:
            yield path, Said("must not hold a login; it belongs to [request.auth]")
        if "{" in place.netloc:
            yield path, Said("must name the host; a customer's own is set by the setting server")
        if not re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", host) and "{" not in host:
            yield path, Said("has not the name of a host")
        if not (text.isascii() and text.isprintable()):
            yield path, Said("must be ASCII; quote the others")

    def _check_auth(self) -> Iterator[KeyFault]:
        auth = self.keys.request.auth
        if auth is None:
            return
        path = ("request", "auth")
        wanted = AUTH_KEYS[auth.scheme]
        for key in ("user", "password", "token", "name", "value"):
            text = getattr(auth, key)
            if text is None and key in wanted and not (auth.scheme == "basic" and key == "password"):
                yield (
                    path,
                    Said(
                        "the key %(name)s is missing, which the scheme %(scheme)s needs", name=key, scheme=auth.scheme
                    ),
                )
            elif text is not None and key not in wanted:
                yield (*path, key), Said("does not belong to the scheme %(scheme)s", scheme=auth.scheme)
            if text is not None and key != "name":
                yield from self._check_text((*path, key), text, allowed=("settings", "secret"))
        texts = [getattr(auth, key) or "" for key in wanted if key != "name"]
        if not any("{secret." in text for text in texts):
            yield (
                path,
                Said("names no {secret....}: what the vendor gave you belongs to the credential, not into this file"),
            )

    def _check_content(self) -> Iterator[KeyFault]:
        request = self.keys.request
        if request.body == "none" and request.content:
            yield ("request", "content"), Said("is there, and the body is none")
        if request.body in ("form", "multipart"):
            for name, value in request.content.items():
                if not isinstance(value, str | int | float | bool):
                    yield (
                        ("request", "content", name),
                        Said("must be a text: a %(kind)s has no objects or lists", kind=request.body),
                    )
        yield from self._check_recipients()
        if request.inline and not request.files:
            yield ("request", "inline"), Said("is for images beside other files: name their field, files")
        if request.files and request.body != "multipart":
            yield ("request", "files"), Said('belongs to a body multipart; in JSON write each = "{files}"')
        if request.files:
            self.used.add(Placeholder("", "files"))
        self._members = 0
        yield from self._check_node(("request", "content"), request.content, self._letters_names)

    def _check_recipients(self) -> Iterator[KeyFault]:
        request, path = self.keys.request, ("request", "recipients")
        if (of := request.recipients) is None:
            return
        if request.body not in ("form", "multipart"):
            yield path, Said("is of a body form or multipart; in JSON each letter of a batch has an entry of its own")
        for name in of.own:
            if name not in request.content:
                yield (*path, "own"), Said("names %(name)s, which is not in [request.content]", name=name)
        for key in ("to", "variables"):
            if getattr(of, key) in request.content:
                yield (*path, key), Said("is written by mailhub, and is in [request.content], too")
        if of.headers is not None:
            self.used.add(Placeholder("", "headers"))

    @property
    def _letters_names(self) -> frozenset[str]:
        sms = self.keys.sms
        return frozenset(OF_LETTER) | ({ALPHABET.name} if sms and sms.gsm and sms.unicode else set())

    def _check_node(self, path: KeyPath, node: Any, names: frozenset[str]) -> Iterator[KeyFault]:  # noqa: C901
        self._members += 1
        if self._members == MOST_MEMBERS + 1:
            yield (
                path,
                Said(
                    "is the member after %(most)s others, which are as many as a body may have", most=str(MOST_MEMBERS)
                ),
            )
        if self._members > MOST_MEMBERS:
            return
        if len(path) > DEEPEST + 2:
            yield path, Said("is deeper than %(most)s levels", most=str(DEEPEST))
        elif isinstance(node, dict) and "each" in node and self.keys.request.body == "json":
            yield from self._check_each(path, node)
        elif isinstance(node, dict):
            for name, value in node.items():
                yield from self._check_node((*path, name), value, names)
        elif isinstance(node, list):
            self._nested += [(*path, at) for at, one in enumerate(node) if isinstance(one, dict) and "each" in one]
            for index, value in enumerate(node):
                yield from self._check_node((*path, index), value, names)
        elif isinstance(node, str):
            allowed = ("settings", "secret", "params")
            if node.strip() in ("{params}", "{params?}") and self.keys.request.body == "json":
                self.used.add(Placeholder("", "params"))
            else:
                yield from self._check_text(path, node, allowed, names)
        elif not isinstance(node, bool | int | float):
            yield path, Said("must be a text, a number, true or false, a table or a list; write times as texts")

    def _check_each(self, path: KeyPath, node: Mapping[str, Any]) -> Iterator[KeyFault]:
        kind = str(node["each"]).strip("{}?")
        if kind not in LISTS or set(node) != {"each", "item"}:
            yield path, Said('a table with each has an item, and nothing else; each is "{files}" or "{headers}"')
            return
        self.used.add(Placeholder("", kind))
        names = frozenset(OF_FILE if kind == "files" else OF_HEADER)
        yield from self._check_node((*path, "item"), node["item"], names)

    def _check_text(
        self, path: KeyPath, text: str, allowed: Sequence[str] = ("settings", "secret", "params"),
        names: frozenset[str] = frozenset(OF_LETTER),
    ) -> Iterator[KeyFault]:  # fmt: skip
        try:
            parts = split_text(text)
        except ValueError as error:
            yield path, str(error)
            return
        yield from self._check_known(path, parts, allowed, names)

    def _check_known(
        self, path: KeyPath, parts: Parts, allowed: Sequence[str], names: frozenset[str]
    ) -> Iterator[KeyFault]:
        of: dict[str, Mapping[str, Any]] = {"settings": self.keys.settings, "secret": self.keys.secret}
        for one in list_placeholders(parts):
            self.used.add(one)
            if one.space == "secret":
                self._of_secret.add(one.name)
            if one.space and one.space not in allowed:
                yield path, Said("must not hold {%(name)s}", name=one)
            elif one.space in of and one.name not in of[one.space]:
                known = ", ".join(of[one.space])
                yield path, Said(NOT_THERE[bool(known)], name=one, space=one.space, known=known)
            elif not one.space and one.name not in names:
                yield (
                    path,
                    Said(
                        "{%(name)s} is not known; there are %(known)s, params.COLUMN, settings.NAME",
                        name=one,
                        known=", ".join(sorted(names)),
                    ),
                )

    def _check_batch(self) -> Iterator[KeyFault]:
        request, answer = self.keys.request, self.keys.answer
        if request.batch == 1:
            for part, value in (("request", request.batch_in), ("answer", answer.batch_in)):
                if value is not None:
                    yield (part, "batch_in"), Said("is for a batch above 1")
            return
        if request.body != "json" and not request.recipients:
            yield ("request", "batch"), Said("needs a body of JSON, or [request.recipients]")
        if request.recipients and not answer.one_id:
            yield ("answer",), Said("needs one_id = true: a form that is one for all letters has one answer")
        for name, text in [("url", request.url), *request.headers.items()]:
            if any(not one.space or one.space == "params" for one in _find_placeholders(text)):
                path = ("request", name) if name == "url" else ("request", "headers", name)
                yield path, Said("is one for all letters of a batch, and names what each has of its own")

    def _check_promises(self) -> Iterator[KeyFault]:
        dedupe, lookup = self.keys.dedupe, self.keys.lookup
        if dedupe and not any(not one.space and one.name == "reference" for one in self.used):
            yield ("dedupe",), Said("the request carries no {reference} by which the vendor could know a repeat")
        if dedupe and self.keys.request.batch > 1:
            yield ("dedupe",), Said("is for one letter a call: a batch is not repeated as it was")
        if lookup is None:
            return
        if not is_same_server(lookup.url, self.keys.request.url):
            yield ("lookup", "url"), Said("must be at the server of request.url: scheme, host and port")
        if lookup.proves == "both" and not lookup.contract:
            yield (
                ("lookup", "proves"),
                Said('both needs contract = "...", where the vendor says that it finds all it has'),
            )

    def _check_signature(self, signature: Signature) -> Iterator[KeyFault]:
        path, sent = ("reports", "signature"), set(self.used)
        yield from self._check_text((*path, "over"), signature.over, (), SIGNED)
        if signature.key is not None:
            yield from self._check_text((*path, "key"), signature.key, ("secret",))
            if not re.fullmatch(r"\{secret\.[^{}?]+\}", signature.key):
                yield (
                    (*path, "key"),
                    Said("must be one {secret.NAME}; a key that is entered for reports alone needs none"),
                )
        self.used = sent

    def _look_up_url(self, url: str) -> Iterator[KeyFault]:
        before = set(self.used)
        yield from self._check_url(("lookup", "url"), url.replace("{reference}", "reference"))
        self.used = before
        if "{reference}" not in url:
            yield ("lookup", "url"), Said("must name {reference}")


def is_same_server(one: str, other: str) -> bool:
    """Return True if both URLs have the same scheme, host and port."""
    return _server_of(one) == _server_of(other)


def _server_of(url: str) -> tuple[str, str, int | None]:
    place = urlsplit(url)
    try:
        port = place.port
    except ValueError:  # reported where the URL itself is checked
        port = None
    return place.scheme, place.hostname or "", port or {"http": 80, "https": 443}[place.scheme]


def _find_placeholders(text: str) -> list[Placeholder]:
    try:
        return list(list_placeholders(split_text(text)))
    except ValueError:
        return []


def setting_parser(setting: Setting) -> Any:
    """Return a parser for a setting's text. It raises ValueError with a sentence that follows the setting's name."""

    def parse_setting(value: Any) -> Any:
        if setting.kind == "flag":
            word = str(value).strip().lower()
            if word not in ("true", "false", "yes", "no"):
                raise ValueError(Said("must be true or false"))
            return word in ("true", "yes")
        if setting.kind == "number":
            if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,15}", str(value).strip()):
                raise ValueError(Said("must be a whole number"))
            return int(value)
        if not isinstance(value, str) or len(value) > 1000 or not (value.isprintable()):
            raise ValueError(Said("must be a text on one line"))
        if setting.pattern and value and not re.fullmatch(setting.pattern, value):
            raise ValueError(Said("has not the form %(pattern)s", pattern=setting.pattern))
        return value.strip()

    return parse_setting
