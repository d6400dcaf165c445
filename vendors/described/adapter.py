"""The adapter `described`, which calls a vendor as its description says."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus, urlsplit

from vendors.adapters import options
from vendors.adapters.addresses import AddressRules, PrintsAddresses
from vendors.adapters.base import MAKING, WIND_UP, Adapter, Capabilities, Letter, one_unit
from vendors.adapters.http import url
from vendors.adapters.http_client import Client, header
from vendors.adapters.letter_faults import refuse_letter
from vendors.adapters.options import InvalidSettings, Option
from vendors.adapters.reports import InboundText, NotTheVendor, Reported, ReportRequest, ReportSource, UnreadableEntry
from vendors.adapters.segments import segments
from vendors.causes.services import find_service
from vendors.described import batches, bodies, checks, reading, reports
from vendors.described.answers import Meaning, looked_up
from vendors.described.batches import BatchBody, JsonList
from vendors.described.bodies import Pieces, constant_of, join_pieces
from vendors.described.json_bodies import json_body
from vendors.described.placeholders import OF_LETTER, SENDERS
from vendors.described.reading import Description
from vendors.described.shared_forms import SharedForm
from vendors.outcomes import Accepted, CallError, NotSent, Outcome
from vendors.said import Said

_CONTENT_TYPES = {"json": "application/json", "form": "application/x-www-form-urlencoded"}
_JSON_ANSWER = header("Accept", "application/json") + header("Accept-Encoding", "identity")
Make = Callable[[Any], bytes]


def parse_description(value: Any) -> str:
    """Return the text to store: the description itself, or that of the shipped one named. Raises ValueError."""
    source = _description_source(value)
    reading.read_entered(source)
    return source


def _description_source(value: Any) -> str:
    """Return the text without checking it; stored descriptions were checked when they were entered."""
    if not isinstance(value, str) or not value.strip():
        names = ", ".join(reading.list_shipped())
        raise ValueError(
            Said("must be the text of a description, or the name of a shipped one: %(known)s", known=names)
        )
    return value if "\n" in value.strip() else reading.source_of(value.strip())


def _read_stored(settings: Mapping[str, Any]) -> Description:
    return reading.read_description(_description_source(settings.get("description")))


# Keys of a description that change neither the destination of calls nor the names of letters there.
TUNING: Any = {
    "vendor": True, "settings": True, "secret": True, "answer": True, "dedupe": True, "sms": True, "address": True,
    "cost": True, "reports": True, "inbound": True, "request": {"timeout", "concurrency", "batch"},
    "lookup": {"settle_delay", "contract"},
}  # fmt: skip


class Described(PrintsAddresses, Adapter):
    """An HTTP vendor with a description. Settings that the description declares stand beside `description`.

    If a credential lacks a secret that the description names, the first call pauses it, and nothing is sent.
    """

    options = {
        "description": Option(
            parse_description,
            required=True,
            destination=True,
            about="A description's text, or the name of a shipped one, whose text is then stored",
        ),
        "server": Option(
            url, "", destination=True, about="Replaces the description's server, as `https://api.eu.example.com`"
        ),
        "timeout": Option(
            options.seconds,
            None,
            tuning=True,
            about="Seconds until an unanswered call is in doubt; default: the description's",
        ),
        "concurrency": Option(
            options.whole(1, 1000), None, tuning=True, about="Concurrent calls of a sender; default: the description's"
        ),
        "batch": Option(
            options.whole(1, 1000),
            None,
            tuning=True,
            about="Letters a call, below the description's; 1 isolates a bad letter",
        ),
        "ca_file": Option(
            options.certificates,
            "",
            destination=True,
            about="File with the authorities of its certificate, instead of the system's",
        ),
    }

    client: type[Client] = Client
    """What makes its calls."""

    @classmethod
    def validate(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return options.parse_settings(cls._declared_options(settings, parse_description), settings)

    @classmethod
    def destination(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        known = options.parse_settings(cls._declared_options(settings, _description_source), settings)
        keys = reading.read_description(known["description"]).keys
        urls = [keys.request.url, keys.lookup.url if keys.lookup else ""]
        filled = ["".join(map(str, bodies.bound_parts(url, {"settings": known}))) for url in urls]
        sent = [text for text in (repr(keys.request.headers), repr(keys.request.content)) if "{secret." in text]
        where = [*filled, repr(keys.request.auth), *sent]
        return {"description": where, "server": known["server"], "ca_file": known["ca_file"]}

    @classmethod
    def calls_at(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        offered = cls._declared_options(settings, _description_source)
        known = options.parse_settings(offered, settings)
        said = reading.read_description(known["description"]).keys.model_dump(exclude=TUNING)
        where = {name: known[name] for name, option in offered.items() if not option.tuning}
        return where | {"description": said}

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        used = _read_stored(settings).used
        carried = {"files": "attachments", "headers": "headers", "text": "text"}
        return frozenset(carried[one.name] for one in used if not one.space and one.name in carried)

    @classmethod
    def address_rules(cls, settings: Mapping[str, Any]) -> AddressRules | None:
        of = _read_stored(settings)
        if of.keys.vendor.channel != "print":
            return None
        needed = frozenset(one.name for one in of.used if one.space == "params" and not one.optional)
        keys = of.keys.address
        rules = AddressRules(required=needed, one_of=tuple(keys.one_of), longest=tuple(keys.longest.items()))
        countries = frozenset(one.upper() for one in keys.countries)
        return replace(rules, country=keys.country or "", countries=countries, by_vendor=True)

    @classmethod
    def asks_origin(cls, settings: Mapping[str, Any]) -> bool:
        of = _read_stored(settings)
        asking = {"from", "from.address"}
        if not (of.keys.sms and bodies.fill_text(of.keys.sms.sender or "", {"settings": settings})):
            asking |= SENDERS
        return any(not one.space and not one.optional and one.name in asking for one in of.used)

    @classmethod
    def asks_secret(cls, settings: Mapping[str, Any]) -> Sequence[str]:
        return tuple(_read_stored(settings).keys.secret)

    @classmethod
    def _declared_options(cls, settings: Mapping[str, Any], parse: Callable[[Any], str]) -> dict[str, Option]:
        """Return the adapter's own options plus those the description declares. Raises InvalidDescription."""
        try:
            source = parse(settings.get("description"))
        except InvalidSettings:
            raise
        except ValueError as error:
            raise InvalidSettings([Said("description %(fault)s", fault=error)]) from None
        found = cls.options | {"description": Option(parse, required=True, destination=True)}
        for name, setting in reading.read_description(source).keys.settings.items():
            required = setting.default is None
            found[name] = Option(checks.setting_parser(setting), setting.default, required)
        return found

    @classmethod
    def sends_reports(cls, settings: Mapping[str, Any]) -> bool:
        return _read_stored(settings).keys.reports is not None

    @classmethod
    def reports_by_id(cls, settings: Mapping[str, Any]) -> bool:
        keys = _read_stored(settings).keys.reports
        return keys is not None and not (keys.reference or keys.reference_query)

    @classmethod
    def asks_report_key(cls, settings: Mapping[str, Any]) -> bool:
        keys = _read_stored(settings).keys.reports
        return keys is None or keys.signature.key is None

    @classmethod
    def check_report_key(cls, settings: Mapping[str, Any], key: str) -> None:
        super().check_report_key(settings, key)
        if reader := reports.reader_of(parse_description(settings.get("description"))):
            reader.check_key(key)

    @classmethod
    def read_report(cls, request: ReportRequest, source: ReportSource) -> list[Reported | UnreadableEntry]:
        reader = reports.reader_of(_description_source(source.settings.get("description")))
        if reader is None:
            raise NotTheVendor("this vendor sends no reports")
        return reader.read_reports(request, source)

    @classmethod
    def read_inbound(cls, request: ReportRequest, source: ReportSource) -> list[InboundText | UnreadableEntry]:
        return reports.read_inbound(_description_source(source.settings.get("description")), request, source)

    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        known = options.parse_settings(self._declared_options(settings, _description_source), settings)
        self._of: Description = reading.read_description(known["description"])
        keys = self._of.keys
        self._missing = sorted(keys.secret.keys() - secret.keys()) if keys.secret else []
        strange = sorted(secret.keys() - keys.secret.keys())
        if secret and (strange or self._missing):
            names = ", ".join(keys.secret) or "nothing"
            raise InvalidSettings([Said("the secret must hold %(names)s, each as a text", names=names)])
        self._values = {"settings": known, "secret": {name: secret.get(name, "") for name in keys.secret}}
        self._values |= {"sms": keys.sms.model_dump()} if keys.sms else {}
        self._ca_file: str = known["ca_file"]
        self._url, self._target = self._split_address(keys.request.url)
        self._timeout: float = known["timeout"] or keys.request.timeout
        self.deadline = self._timeout + WIND_UP + (MAKING if "attachments" in self.carries(known) else 0.0)
        self.concurrency = known["concurrency"] or keys.request.concurrency
        self._batch = min(keys.request.batch, known["batch"] or keys.request.batch)
        lookup = keys.lookup  # uses the connections of the calls
        self._lookup = lookup if lookup and checks.is_same_server(lookup.url, keys.request.url) else None
        self.capabilities = Capabilities(
            dedupe=keys.dedupe is not None,
            dedupe_ttl=keys.dedupe.seconds if keys.dedupe else None,
            lookup=("strong" if self._lookup.proves == "both" else "weak") if self._lookup else "none",
            settle_delay=self._lookup.settle_delay if self._lookup else 0.0,
            batch_max=self._batch,
            cost=_count_segments if keys.cost.unit == "segment" else one_unit,
        )
        service = find_service(keys.vendor.name, keys.request.url)
        self._meaning = Meaning(keys.answer, dedupe=keys.dedupe is not None, service=service)
        self._compile_request()
        parts = urlsplit(self._url)
        if secret and parts.scheme == "http" and not options.is_this_machine(parts.hostname or ""):
            raise InvalidSettings([Said("a secret goes over https alone: http is for a sandbox on this machine")])

    def _split_address(self, text: str) -> tuple[str, Pieces]:
        """Split a URL into server and path; the setting `server` replaces the description's server."""
        scheme, _, rest = text.partition("://")
        host, slash, path = rest.partition("/")
        server = self._values["settings"]["server"] or f"{scheme}://{host}"
        path = urlsplit(server).path.rstrip("/") + slash + path
        return server, bodies.url_pieces(path or "/", self._values)

    def _compile_request(self) -> None:
        keys, values = self._of.keys.request, self._values
        content_type = _CONTENT_TYPES.get(keys.body, "")
        self.make_body: Make
        self._writer: BatchBody | None = None
        if keys.recipients:
            self._writer = form = SharedForm(keys, keys.recipients, values)
            content_type = form.content_type
        elif keys.body == "json":
            self.make_body = json_body(keys.content, values)
            self._writer = JsonList(self.make_body, keys.batch_in) if keys.batch > 1 else None
        elif keys.body == "multipart":
            content_type, pieces = bodies.multipart_body(keys.content, keys.files, keys.inline, values)
            self.make_body = join_pieces(pieces)
        else:
            self.make_body = join_pieces(bodies.form_body(keys.content, values))
        self._fixed = _JSON_ANSWER + (header("Content-Type", content_type) if content_type else b"")
        self._own: list[tuple[str, Callable[[Letter], str]]] = []
        query, login = self._login_parts()
        asks = any(b"?" in piece for piece in self._target if isinstance(piece, bytes))
        self._target += [(b"&" if asks else b"?") + query] if query else []
        self._credentials = login
        for name, text in keys.headers.items():
            if (found := bodies.header_pieces(name, text, values)) is None:
                continue
            if (constant := constant_of(found)) is None:
                self._own.append((name, bodies.header_maker(found, text)))
            else:
                self._fixed += _build_header(name, constant.decode("latin-1"))
        self._make_target = join_pieces(self._target)

    def _login_parts(self) -> tuple[bytes, bytes]:
        """Return the parts of the secret that go into the URL's query and into the headers."""
        auth = self._of.keys.request.auth
        if auth is None:
            return b"", b""
        filled = {key: self._fill_settings(getattr(auth, key)) for key in ("user", "password", "token", "value")}
        if auth.scheme == "basic":
            both = f"{filled['user']}:{filled['password']}".encode()
            return b"", _build_header("Authorization", "Basic " + base64.b64encode(both).decode())
        if auth.scheme == "bearer":
            return b"", _build_header("Authorization", f"Bearer {filled['token']}")
        if auth.scheme == "header":
            return b"", _build_header(auth.name or "", filled["value"])
        return f"{quote_plus(auth.name or '')}={quote_plus(filled['value'])}".encode(), b""

    def _fill_settings(self, text: str | None) -> str:
        parts = bodies.bound_parts(text or "", self._values)
        return "".join(part for part in parts if isinstance(part, str))

    async def open(self) -> None:
        self._client = self.client(
            self._url, connections=self.concurrency, deadline=self._timeout, ca_file=self._ca_file
        )
        target = constant_of(self._target)
        self._head = b"" if target is None else self._head_for(self._of.keys.request.method, target)

    def _head_for(self, method: str, target: bytes) -> bytes:
        return self._client.head(method, target.decode("ascii"), self._fixed + self._credentials)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        if self._missing:
            reason = f"the credential has no secret {' and '.join(self._missing)}"
            return [NotSent(reason, scope="credential", pause=True)] * len(letters)
        if self._writer:
            return await batches.send_batch(self._writer, letters, self._call_batch)
        outcomes: list[Outcome] = []
        for letter in letters:
            try:
                request = self._build_request(letter)
            except (ValueError, TypeError) as error:
                outcomes.append(refuse_letter(error))
                continue
            try:
                answer = await self._client.call(*request)
            except CallError as error:
                outcomes.append(self._meaning.judge_error(error, time.time()))
            else:
                outcomes.append(self._meaning.judge_one(answer, time.time()))
        return outcomes

    def _build_request(self, letter: Letter) -> tuple[bytes, bytes, bytes]:
        """Return head, extra headers and body for one letter. Raises ValueError or TypeError if it cannot be sent."""
        head = self._head or self._head_for(self._of.keys.request.method, self._make_target(letter))
        headers = b"".join([header(name, make(letter)) for name, make in self._own])
        return head, headers, self.make_body(letter)

    async def _call_batch(self, body: bytes, references: Sequence[str]) -> list[Outcome]:
        try:
            answer = await self._client.call(self._head, b"", body)
        except CallError as error:
            return [self._meaning.judge_error(error, time.time(), len(references))] * len(references)
        return self._meaning.judge_batch(answer, references, time.time())

    async def look_up(self, reference: str) -> Accepted | NotSent | None:
        lookup = self._lookup
        if lookup is None or self._missing:
            return await super().look_up(reference)
        _, pieces = self._split_address(lookup.url)
        query, _ = self._login_parts()
        target = join_pieces(pieces)(Letter(reference, "", "", ""))
        target += (b"&" if b"?" in target else b"?") + query if query else b""
        try:
            answer = await self._client.call(self._head_for("GET", target))
        except CallError as error:
            return NotSent(error.reason, scope="credential" if error.pause else "message", pause=error.pause)
        return looked_up(lookup, answer, reference)


def _count_segments(letter: Letter) -> int:
    return segments(OF_LETTER["text"](letter))


def _build_header(name: str, value: str) -> bytes:
    """Build a header line. Errors do not show the value, which may be secret."""
    try:
        return header(name, value)
    except ValueError:
        raise InvalidSettings(
            [Said("the value of the header %(name)s must be one line of Latin-1", name=name)]
        ) from None
