"""E-mail services of django-anymail: their settings and secrets, and how each builds a request."""

from __future__ import annotations

import importlib
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import requests
from requests.structures import CaseInsensitiveDict

from vendors.adapters.http_client import Response
from vendors.adapters.letter_faults import LetterFault, LetterPart
from vendors.adapters.options import InvalidSettings
from vendors.said import Said

SERVICES = (
    "amazon_ses",
    "brevo",
    "mailersend",
    "mailgun",
    "mailjet",
    "mailtrap",
    "mandrill",
    "postal",
    "postmark",
    "resend",
    "scaleway",
    "sendgrid",
    "sparkpost",
    "unisender_go",
)
SECRETS = ("api_key", "api_token", "secret_key", "server_token")
"""What a credential may hold, as django-anymail names it."""
SES_SECRETS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
"""What a credential of Amazon SES may hold, as boto3 names it; a token belongs to a key that expires."""
WANTED = {
    "amazon_ses": SES_SECRETS[:2],
    "mailersend": ("api_token",),
    "mailjet": ("api_key", "secret_key"),
    "mailtrap": ("api_token",),
    "postmark": ("server_token",),
    "scaleway": ("secret_key",),
}
"""What a credential must hold; of the other services api_key."""
MORE = {
    "amazon_ses": ("region", "configuration_set_name"),
    "mailgun": ("sender_domain",),
    "mailtrap": ("sandbox_id",),
    "postmark": ("message_stream",),
    "scaleway": ("project_id", "region"),
    "sparkpost": ("subaccount",),
}
"""What `more` may have for a service. Nothing else: django-anymail has settings that name code, or leave parts out."""
UNWRITABLE = "no request could be made with this secret and these settings"
NO_IMAGES = ("brevo", "postal", "scaleway")  # services that cannot show images in the HTML
NO_METADATA = ("mailersend", "postal")
NO_REPORTS = ("scaleway",)  # services whose reports django-anymail does not read
_MORE_VALUE = re.compile(r"[A-Za-z0-9._-]{1,100}")


class ServiceRequest(NamedTuple):
    """A request to a service. `payload`: django-anymail's own, with which it reads the answer."""

    payload: Any
    method: str
    url: str
    headers: Mapping[str, Any]
    body: str | bytes


class Unwritable(ValueError):
    """No letter can be sent with this secret and these settings. The text shows no secret."""


class Writer(ABC):
    """Builds a service's requests. `url`: all requests go to its scheme and host."""

    url: str

    @abstractmethod
    def write_request(self, message: Any) -> ServiceRequest:
        """Build a request without sending it. Raises Unwritable if none can be built for any mail.

        Raises AnymailError, ValueError or TypeError if this mail cannot be sent.
        """

    @abstractmethod
    def read_answer(self, answer: Response, written: ServiceRequest, message: Any) -> Any:
        """Return the AnymailRecipientStatus of the one recipient from a good answer. May raise anything."""


class RequestsWriter(Writer):
    """Builds requests of services that django-anymail calls through `requests`."""

    def __init__(self, known: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        given = dict(known["more"]) | dict(secret) | ({"api_url": known["url"]} if known["url"] else {})
        self._backend = make_backend(known["service"], given)
        self.url = self._backend.api_url

    def write_request(self, message: Any) -> ServiceRequest:
        payload = self._backend.build_message_payload(message, self._backend.send_defaults)
        asked = payload.get_request_params(self.url)
        check_address(asked["url"], self.url)
        try:
            made = requests.Request(**asked).prepare()
        except UnicodeError:  # caused by the mail's text: the secret is ASCII
            raise LetterFault(LetterPart.CHARACTER, "it cannot be encoded") from None
        except (requests.RequestException, ValueError):  # its text may show the secret
            raise Unwritable(UNWRITABLE) from None
        body: Any = made.body or b""
        return ServiceRequest(payload, str(made.method), str(made.url), made.headers, body)

    def read_answer(self, answer: Response, written: ServiceRequest, message: Any) -> Any:
        response = requests.Response()
        response.status_code, response._content = answer.status, answer.body
        response.headers, response.url = CaseInsensitiveDict(answer.headers), self.url
        self._backend.raise_for_status(response, written.payload, message)
        (said,) = self._backend.parse_recipient_status(response, written.payload, message).values()
        return said


def check_address(wanted: str, known: str) -> None:
    """Check that a request goes where the settings say. Raises Unwritable."""
    if urlsplit(wanted)[:2] != urlsplit(known)[:2]:
        raise Unwritable("the service wants another address")


def check_more(service: str, more: Mapping[str, Any]) -> None:
    """Check a service's settings without its secret. Raises InvalidSettings."""
    if strange := [name for name in more if name not in MORE.get(service, ())]:
        may = ", ".join(MORE.get(service, ())) or "none"
        raise InvalidSettings(
            [
                Said(
                    "more: %(service)s has no setting %(names)s; it has %(known)s",
                    service=service,
                    names=", ".join(strange),
                    known=may,
                )
            ]
        )
    for name, text in more.items():
        if not (isinstance(text, str) and _MORE_VALUE.fullmatch(text)):
            raise InvalidSettings(
                [Said("more: %(name)s must be a text of letters, digits, dots and hyphens", name=name)]
            )
    if service == "amazon_ses":
        check_boto3()
        if "region" not in more:
            raise InvalidSettings([Said("more must have region, for amazon_ses, as region:eu-west-1")])


def check_boto3() -> None:
    """Check that boto3 is installed. Raises InvalidSettings."""
    if find_spec("boto3") is None:
        raise InvalidSettings([Said("amazon_ses needs boto3: install requirements-extras.txt here and on all workers")])


def check_header_secret(service: str, secret: Mapping[str, str]) -> None:
    """Check that headers can carry the secret. Raises InvalidSettings, which never shows a secret."""
    may = SES_SECRETS if service == "amazon_ses" else SECRETS
    if strange := sorted(set(secret) - set(may)):
        raise InvalidSettings(
            [Said("the secret has %(names)s; it may have %(known)s", names=", ".join(strange), known=", ".join(may))]
        )
    for name, text in secret.items():
        if not (isinstance(text, str) and re.fullmatch(r"[!-~]([ -~]*[!-~])?", text)):
            raise InvalidSettings(
                [Said("the secret's %(name)s must be one line of ASCII, without a blank at either end", name=name)]
            )


def make_backend(service: str, given: Mapping[str, Any]) -> Any:
    """Return django-anymail's backend for the service. Raises InvalidSettings, which never shows a secret."""
    from anymail.exceptions import AnymailConfigurationError

    module = importlib.import_module(f"anymail.backends.{service}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SendGrid: "dropped official support"
            return module.EmailBackend(**given)
    except AnymailConfigurationError as error:
        wanted = re.findall(r"ANYMAIL_([A-Z_]+)", str(error))
        name = wanted[0].removeprefix(f"{service.upper()}_").lower() if wanted else "a setting"
        where = "the secret" if name in SECRETS else "more"
        raise InvalidSettings(
            [Said("%(where)s must have %(name)s, for %(service)s", where=where, name=name, service=service)]
        ) from None
    except (LookupError, AttributeError, ValueError):  # Scaleway's URL may contain {region}
        raise InvalidSettings([Said("url cannot be used for %(service)s", service=service)]) from None
