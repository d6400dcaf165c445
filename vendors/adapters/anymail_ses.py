"""Amazon SES: django-anymail writes the mail, boto3 builds and signs the request, and our own client makes the call.

Left alone, boto3 would call from threads and retry. Its event `before-send` yields the finished request, and there
boto3 is stopped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NoReturn

import orjson

from vendors.adapters import anymail_answers, anymail_services
from vendors.adapters.anymail_services import SES_SECRETS, UNWRITABLE, ServiceRequest, Unwritable, Writer
from vendors.adapters.http_client import Response
from vendors.adapters.options import InvalidSettings
from vendors.outcomes import RETRY_DEFAULT, TEXT_MAX, NotSent, parse_retry_after
from vendors.said import Said

OUT_OF_QUOTA = "quota"
QUOTA_WAIT = 3600.0  # seconds; the quota covers a sliding 24 hours
"""In the text of an answer that throttles: the mails of the day are used up, not those of the second."""
THROTTLED = ("ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded")
NO_CONFIGURATION = {"profile": (None, None, None, None), "config_file": (None, None, os.devnull, None)}
"""Of the machine: neither by its environment nor by a file."""


class _Ready(Exception):
    """The request is built and signed."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


def _stop_before_call(request: Any, **_: Any) -> NoReturn:
    raise _Ready(request)


class SesWriter(Writer):
    """Writes requests for version 2 of the API. Ignores the machine's AWS credentials, profile and endpoint."""

    def __init__(self, known: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        if missing := [name for name in SES_SECRETS[:2] if name not in secret]:
            raise InvalidSettings([Said("the secret must have %(names)s, for amazon_ses", names=", ".join(missing))])
        self._backend = _make_backend(known["url"], tuple(known["more"].items()), tuple(secret.items()))
        self.url = self._backend.client.meta.endpoint_url

    def write_request(self, message: Any) -> ServiceRequest:
        from anymail.exceptions import AnymailAPIError

        payload = self._backend.build_message_payload(message, self._backend.send_defaults)
        try:
            self._backend.post_to_esp(payload, message)
        except _Ready as ready:
            made = ready.request
            anymail_services.check_address(made.url, self.url)
            return ServiceRequest(payload, made.method, made.url, made.headers, made.body or b"")
        except AnymailAPIError:  # from boto3; its text may show the secret
            raise Unwritable(UNWRITABLE) from None
        raise Unwritable("boto3 has made no request")

    def read_answer(self, answer: Response, written: ServiceRequest, message: Any) -> Any:
        said = orjson.loads(answer.body)
        (found,) = self._backend.parse_recipient_status(said, written.payload, message).values()
        return found


def judge_throttled(status: int, headers: Mapping[str, str], body: bytes, now: float) -> NotSent | None:
    """Return the wait if a 4xx answer says that we are too fast, often not as 429; None if it says something else."""
    code, text = anymail_answers.find_reason(headers, body)
    if not 400 <= status < 500 or code not in THROTTLED:
        return None
    wait = parse_retry_after(headers["retry-after"], now=now) if "retry-after" in headers else RETRY_DEFAULT
    if OUT_OF_QUOTA in text.lower():
        wait = QUOTA_WAIT
    return NotSent(f"http {status}: {code}: {text}"[:TEXT_MAX], retry_after=wait, scope="credential")


@cache
def _service_descriptions() -> Any:
    """Keep botocore's service descriptions, which each client would otherwise load for itself."""
    from botocore.loaders import create_loader

    return create_loader()


@lru_cache(maxsize=16)
def _make_backend(url: str, more: tuple[tuple[str, str], ...], secret: tuple[tuple[str, str], ...]) -> Any:
    """Return django-anymail's backend, with a boto3 client that never calls; one for all jobs.

    Raises InvalidSettings.
    """
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session(session_vars=NO_CONFIGURATION)
    session.register_component("data_loader", _service_descriptions())
    ours = {"botocore_session": session}
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        ignore_configured_endpoint_urls=True,
        use_dualstack_endpoint=False,
        use_fips_endpoint=False,
    )
    own = dict(more)
    given = {
        "session_params": {**ours, "region_name": own.pop("region"), **dict(secret)},
        "client_params": {"config": config, "endpoint_url": url or None},
    }
    backend = anymail_services.make_backend("amazon_ses", given | own)
    try:
        backend.open()
    except (BotoCoreError, ValueError) as error:
        raise InvalidSettings(
            [Said("boto3 makes no client of these settings: %(error)s", error=type(error).__name__)]
        ) from None
    backend.client.meta.events.register("before-send.sesv2.*", _stop_before_call)
    return backend
