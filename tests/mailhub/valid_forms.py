"""The forms of mailhub's pages as a browser sends them, each with what somebody types so that it is valid.

A form is known by its verb: the name of its URL, with the choice or the button where one form has several.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.urls import ResolverMatch, resolve
from lxml import html

CHOICES = ("action", "decision", "verdict", "answer", "to", "archived")  # fields whose value is a verb
BUTTONS = ("stay", "preview", "off")  # buttons beside the one that a form is for
OF_PATHS = ("verb", "channel")  # parameters of an address that are a verb
STAYS = ("_addanother", "_continue", "_saveasnew")  # buttons that store the same and lead elsewhere
ROWS = ("_selected_action", "cause", "message")  # boxes that choose rows: all are chosen
PASSWORD = "a rather long pass phrase 7"
FIRST = "(the first)"  # of the choices of a field
URL = '{"url": "http://127.0.0.1:9/"}'
FILES = {
    "list": b"email,first_name\nzoe@example.net,Zoe\n",
    "files": b"a file of each letter",
    "file": b"address\nyan@example.net\n",
}
# Typed where a field of this name is empty.
USUAL = {
    "reason": "because",
    "remark": "seen",
    "address": "zoe@example.net",
    "total": "1",
    "text": "Good day",
    "title": "News",
    "selector": "mailhub7",
}
SENDER = {"name": "second", "from_name": "Zoe", "from_address": "zoe@two.invalid"}
SUPPRESSED = {"channel": "email", "address": "zed@example.net", "reason": "by_hand"}
VENDOR = {"slug": "letters", "name": "Letters", "adapter": "http", "settings": URL}
# Typed into, or chosen in, the form of this URL in any case. A choice is named as the page shows it.
TYPED: dict[str, dict[str, str]] = {
    "auth_group_add": {"name": "helpers"},
    "auth_user_add": {"username": "zoe", "password1": PASSWORD, "password2": PASSWORD},
    "auth_user_password_change": {"password1": PASSWORD, "password2": PASSWORD},
    "campaigns_campaign_change": {"bounce_limit": "4"},
    "campaigns_entitlement_add": {
        "sponsor": "City Library",
        "vendor": "spare-letters",
        "credential": "",
        "urgent": "single",
    },
    "campaigns_identity_add": {"sponsor": "City Library", "channel": "email", **SENDER},
    "campaigns_route_add": {
        "name": "second",
        "channel": "email",
        "entries-0-position": "1",
        "entries-0-credential": FIRST,
    },
    "campaigns_sponsorturn_add": {"sponsor": "City Library", "vendor": "spare-letters", "weight": "3"},
    "campaigns_sponsorquota_add": {
        "sponsor": "City Library",
        "vendor": "spare-letters",
        "most": "1000",
        "measure": "messages",
        "span": "day",
        "warn_percent": "80",
    },
    "campaigns_sponsor_add": {"name": "Velma", "time_zone": "UTC"},
    "campaigns_suppression_add": {"sponsor": "City Library", **SUPPRESSED},
    "campaigns_suppression_import": {"sponsor": "City Library", "channel": "email"},
    "campaigns_topic_add": {"sponsor": "City Library", "name": "second", "title": "Second"},
    "django_celery_beat_clockedschedule_add": {"clocked_time_0": "2040-01-01", "clocked_time_1": "12:00:00"},
    "django_celery_beat_crontabschedule_add": {"minute": "11", "hour": "3"},
    "django_celery_beat_intervalschedule_add": {"every": "11", "period": "days"},
    "django_celery_beat_periodictask_add": {"name": "mine", "regtask": "campaigns.tasks.sweep", "interval": FIRST},
    "find": {"what": "r1@sandbox.example"},
    "django_celery_beat_solarschedule_add": {"event": "dawn_civil", "latitude": "50", "longitude": "10"},
    "identity-add": SENDER,
    "look-save": {"name": "Mine", "address": "/admin/campaigns/job/?date=any"},
    "new_campaign": {"name": "Winter", "subject": "Hello", "text": "Good day"},
    "suppression-add": {"sponsor": "City Library", **SUPPRESSED},
    "suppression-import": {"sponsor": "City Library", "channel": "email"},
    "suppressions": {"address": "bob@example.org"},
    "template-edit": {"body": "Good day, {{ first_name }}", "subject": "Another"},
    "template-new": {"name": "Second", "channel": "email", "subject": "Hello", "body": "Good day", "text": ""},
    "topics": {"name": "second", "title": "Second"},
    "vendors_credential_add": {"vendor": "spare-letters", "name": "second", "secret": '{"token": "t"}'},
    "vendors_credential_change": {"name": "another"},
    "vendors_mailcaster_add": {"vendor": "amazingmail", "name": "MC9", "kind": "small-only"},
    "vendors_receiverdomain_add": {"domain": "firm.example", "receiver": "gmail"},
    "vendors_price_add": {
        "vendor": "amazingmail",
        "since": "2040-01-01",
        "currency": "EUR",
        "per_unit": "0.01",
        "reason": "the contract",
    },
    "vendors_vendor_add": VENDOR,
    "vendors_vendor_change": {"name": "Another"},
    "webhook-add": {"url": "https://203.0.113.7/hook"},
}


@dataclass(frozen=True)
class Form:
    """A form as a browser sends it. texts: names of the fields that somebody types into."""

    action: str
    values: tuple[tuple[str, str], ...]
    files: tuple[str, ...] = ()
    texts: tuple[str, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """Of its URL."""
        return str(_match(self.action).url_name)

    @property
    def verb(self) -> str:
        found, said = _match(self.action), dict(self.values)
        of_path = [str(found.kwargs[one]) for one in OF_PATHS if one in found.kwargs]
        chosen = [said[one] for one in CHOICES if one in said]
        return ":".join([str(found.url_name), *of_path, *chosen, *(one for one in BUTTONS if one in said)])

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for forms that have the same fields for the same verb."""
        return self.verb, frozenset(name for name, _value in self.values), self.files

    def send(self, client: Client) -> HttpResponse:
        data: dict[str, Any] = {}
        for name, value in self.values:
            data.setdefault(name, []).append(value)
        for name in self.files:
            data[name] = SimpleUploadedFile("list.csv", FILES[name])
        return client.post(self.action, data)  # type: ignore[return-value]

    def typed(self, name: str, value: str) -> "Form":
        return replace(self, values=tuple((one, value if one == name else old) for one, old in self.values))


def read_forms(page: HttpResponse, at: str) -> list[Form]:
    """The forms of a page that are sent by POST: one for each of their buttons and choices."""
    if page.streaming or "html" not in page.headers.get("Content-Type", "") or not page.content.strip():
        return []
    tree = html.fromstring(page.content.decode())
    return [one for form in tree.iter("form") if form.get("method", "").lower() == "post" for one in _read(form, at)]


def names_row(address: str) -> bool:
    """Whether there is a row in an address that it is about."""
    return bool(_match(address).kwargs.keys() - {*OF_PATHS, "app_label"})


def _read(form: Any, at: str) -> Iterator[Form]:
    target = urljoin(at, form.get("action") or "")
    typed = TYPED.get(str(_match(target).url_name), {})
    values, texts, files, buttons = list[tuple[str, str]](), list[str](), list[str](), list[Any]()
    actions: list[str] = []
    for one in form.iter("input", "select", "textarea", "button"):
        name, kind = one.get("name", ""), _kind(one)
        if one.get("disabled") is not None or kind in ("reset", "push") or name == "csrfmiddlewaretoken":
            continue
        if kind == "submit":
            buttons.append([(name, one.get("value", ""))] if name else [])
        elif kind == "file":
            files += [name] if name in FILES else []
        elif kind == "select" and name == "action":
            actions = [value for value, _shown in _options(one) if value]
        elif name:
            found = _values(one, kind, typed.get(name))
            if kind == "radio":
                values = _without_first(values, name, one)
                found = found if name not in dict(values) else []
            values += [(name, value) for value in found]
            texts += [name] if kind in ("text", "textarea") else []
    kept = [one for one in buttons if not one or one[0][0] not in STAYS]
    if not kept and not texts:
        return  # nobody can send it
    for more in [[("action", one)] for one in actions] or kept or [[]]:
        yield Form(target, (*values, *more), tuple(files), tuple(texts))


def _kind(one: Any) -> str:
    if one.tag == "button":
        return {"button": "push", "reset": "reset"}.get(one.get("type", ""), "submit")
    if one.tag != "input":
        return str(one.tag)
    kind = one.get("type", "text").lower()
    return {"button": "push", "image": "submit"}.get(kind, kind if kind in NO_TEXTS else "text")


NO_TEXTS = ("submit", "reset", "file", "checkbox", "radio", "hidden")


def _values(one: Any, kind: str, typed: str | None) -> list[str]:
    """What a field sends: what is typed, else what it has, else something usual."""
    name = one.get("name")
    if kind == "checkbox":
        return [one.get("value", "on")] if one.get("checked") is not None or name in ROWS else []
    if kind == "radio":
        return [one.get("value", "on")]
    if kind == "select":
        options = _options(one)
        first = next((value for value, _shown in options if value), "")
        if typed is not None:
            return [first if typed == FIRST else next((of for of, shown in options if typed in (of, shown)), typed)]
        chosen = [option.get("value", "") for option in one.iter("option") if option.get("selected") is not None]
        if chosen or one.get("multiple") is not None or not options:
            return chosen
        return [options[0][0] if "-" in name else first]  # a row to add stays empty
    has = one.text_content().removeprefix("\n").replace("\r\n", "\n") if kind == "textarea" else one.get("value", "")
    return [typed if typed is not None else has or ("" if kind == "hidden" else USUAL.get(name, ""))]


def _without_first(values: list[tuple[str, str]], name: str, one: Any) -> list[tuple[str, str]]:
    """A checked box takes the place of the first one."""
    return [pair for pair in values if pair[0] != name] if one.get("checked") is not None else values


def _options(one: Any) -> list[tuple[str, str]]:
    return [(option.get("value", ""), " ".join(option.text_content().split())) for option in one.iter("option")]


def _match(address: str) -> ResolverMatch:
    return resolve(urlsplit(address).path)
