"""A browser without scripts: it follows links, fills in the fields of a page's forms, and submits them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, urljoin, urlsplit

import requests
from django.test import Client
from lxml import html

SUBMITS = ".//button[not(@type) or @type='submit'] | .//input[@type='submit']"
Pairs = list[tuple[str, str]]
FilesToSend = Mapping[str, tuple[str, bytes]]


class Transport(Protocol):
    def __call__(self, method: str, address: str, pairs: Pairs, files: FilesToSend) -> tuple[int, str, bytes]:
        """The status of the last answer after all redirects, its address, and what it says."""


def by_client(client: Client) -> Transport:
    """To the pages in this process. Give it a Client(enforce_csrf_checks=True)."""

    def ask(method: str, address: str, pairs: Pairs, files: FilesToSend) -> tuple[int, str, bytes]:
        from django.core.files.uploadedfile import SimpleUploadedFile

        data: dict[str, Any] = {}
        for name, value in pairs:
            data.setdefault(name, []).append(value)
        if method == "GET":
            answer: Any = client.get(address, data, follow=True)
        else:
            data |= {name: SimpleUploadedFile(*one) for name, one in files.items()}
            answer = client.post(address, data, follow=True)
        last = answer.redirect_chain[-1][0] if answer.redirect_chain else address
        return answer.status_code, urljoin(address, last), b"".join(answer)

    return ask


def by_socket(home: str) -> Transport:
    """To a server that runs, at this address."""
    session = requests.Session()

    def ask(method: str, address: str, pairs: Pairs, files: FilesToSend) -> tuple[int, str, bytes]:
        asked = {"params": pairs} if method == "GET" else {"data": pairs, "files": dict(files) or None}
        answer = session.request(method, urljoin(home, address), timeout=60, **asked)  # type: ignore[arg-type]
        found = urlsplit(answer.url)
        return answer.status_code, f"{found.path}?{found.query}".removesuffix("?"), answer.content

    return ask


@dataclass
class PlainBrowser:
    ask: Transport
    address: str = "/"
    status: int = 0
    page: Any = None
    posted: list[str] = field(default_factory=list)
    values: list[Pairs] = field(default_factory=list)  # of each of them

    @property
    def text(self) -> str:
        """Return the page's readable text."""
        return " ".join(self.page.text_content().split())

    def open(self, address: str, pairs: Pairs | None = None, files: FilesToSend | None = None, by: str = "GET") -> None:
        self.status, self.address, found = self.ask(by, address, pairs or [], files or {})
        self.page = html.fromstring(found.decode()) if found.strip() else html.fromstring("<p></p>")

    def follow(self, name: str) -> None:
        """Follow the link with this name, or with one beginning so; only elements with an address are links."""
        target = urljoin(self.address, _named(self.page.iterfind(".//a[@href]"), name).get("href"))
        plain, _, query = target.partition("?")
        self.open(plain, parse_qsl(query))

    def buttons(self) -> list[str]:
        """Return the buttons that can submit a form of the page now."""
        return [_name(one) for one in self.page.xpath(SUBMITS) if one.get("disabled") is None]

    def submit(self, button: str, *, files: FilesToSend | None = None, **typed: str | list[str]) -> None:
        """Submit the form of this button, with the typed values in its fields, as a browser does."""
        pressed = _named([one for one in self.page.xpath(SUBMITS) if one.get("disabled") is None], button)
        form = self.page.get_element_by_id(pressed.get("form")) if pressed.get("form") else _above(pressed)
        names = {one.get("name") for one in form.inputs if one.get("name")}
        assert {*typed, *(files or {})} <= names, ({*typed, *(files or {})} - names, names)
        long = {one.get("name") for one in form.iter("textarea")}  # whose first line break is none of theirs
        shown = [(name, value.removeprefix("\n") if name in long else value) for name, value in form.form_values()]
        pairs = [(name, value) for name, value in shown if name not in typed]
        for name, value in typed.items():
            pairs += [(name, one) for one in ([value] if isinstance(value, str) else value)]
        if pressed.get("name"):
            pairs.append((pressed.get("name"), pressed.get("value", "")))
        target = urljoin(self.address, pressed.get("formaction") or form.get("action") or self.address)
        if form.method == "GET":
            target = target.partition("?")[0]
        if form.method == "POST":
            self.posted.append(target)
            self.values.append(pairs)
        self.open(target, pairs, files, form.method)


def _named(some: Iterable[Any], name: str) -> Any:
    """The first one of this name, else the first whose name begins so."""
    found = {_name(one): one for one in reversed(list(some))}
    begins = [one for one in found if one.startswith(name)]
    assert begins, (name, list(found))
    return found.get(name, found[begins[-1]])


def _name(one: Any) -> str:
    text = one.get("value", "") if one.tag == "input" else one.text_content()
    return " ".join(text.split())


def _above(one: Any) -> Any:
    while one.tag != "form":
        one = one.getparent()
        assert one is not None, "this button is in no form"
    return one
