"""What e-mail services say of a mail that they refuse: of the mail and its recipient, or of all that we send."""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from vendors.adapters.http_client import Response
from vendors.outcomes import TEXT_MAX, NotSent, Outcome, Refused, is_about_us

# Refusals whose text speaks of the recipient, and of those that do not: of our sender, account or quota.
_OF_RECIPIENT = re.compile(
    r"\bto\b['\"`]? (parameter|field|address)|recipient|['\"`]to['\"`]|to\.\d|inactive", re.IGNORECASE
)
_OF_US = re.compile(
    r"['\"`]?\b(from|sender)\b['\"`]?|not (been )?(verified|confirmed|authori[sz]ed|allowed)|unverified|suspended"
    r"|\bcredits?\b|\baccount\b|\bplan\b|\bquota\b",
    re.IGNORECASE,
)
# Postmark's codes decide, as in vendors/described/shipped/postmark.toml; 300 is of any field, so its text decides.
# Of Amazon SES all but these two are of our account, identity or configuration set.
_BY_CODE: dict[str, dict[str, bool | None]] = {  # whether a refusal is of the letter
    "amazon_ses": {"BadRequestException": None, "MessageRejected": None},
    "postmark": {"300": None, "406": True, "411": True},
}
_ADDRESS = re.compile(r"[^\s<>]{1,254}@[^\s<>]{1,254}")


def refusal(service: str, answer: Response, found: Refused) -> Outcome:
    """A refused request: of this letter, or of all that we send; then it pauses. found: by the table of all vendors."""
    code, text = reason(answer.headers, answer.body)
    of_letter = _BY_CODE[service].get(code, False) if code and service in _BY_CODE else None
    if of_letter is None:
        of_letter = bool(_OF_RECIPIENT.search(text)) or not (_OF_US.search(text) or is_about_us("", text))
    if not of_letter:
        return NotSent(f"http {answer.status}: {text}"[:TEXT_MAX], scope="credential", pause=True)
    return Refused(code or found.code, text or found.sub_type)


def reason(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """The code and the text of an answer, wherever services have them, or empty."""
    code, text = _of_body(body)
    code = shown(headers.get("x-amzn-errortype", "")).partition(":")[0] or code
    return code.rpartition("#")[2][:50], text


def _of_body(body: bytes) -> tuple[str, str]:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", ""
    said = said[0] if isinstance(said, list) and said else said
    said = said if isinstance(said, dict) else {}
    errors = said.get("errors")
    inner = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    codes = (said.get(name) for name in ("ErrorCode", "code", "name", "statusCode", "__type"))
    texts = (*(said.get(name) for name in ("Message", "message", "error")), inner.get("message"))
    code = next((str(one) for one in codes if isinstance(one, str | int)), "")
    text = next((one for one in texts if isinstance(one, str)), "")
    return shown(code), shown(text)


def is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:  # also NaN and a wrong charset
        return False
    return True


def shown(text: str) -> str:
    """One line without addresses, as it may be stored and shown."""
    line = "".join(one if one.isprintable() else " " for one in text[: 4 * TEXT_MAX])
    return _ADDRESS.sub("(address)", line).strip()[:TEXT_MAX]
