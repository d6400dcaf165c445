"""The scope of an answer about us or our rate: a receiving domain, a sender address, or the whole credential."""

import re
from enum import StrEnum

from vendors.causes import Judgement, judge_reply
from vendors.causes.consequences import AnswerProof, follows_from


class Speaker(StrEnum):
    """Who gives an answer."""

    SESSION = "session"  # a relay, before it knows the recipient
    RELAY = "relay"  # a relay that knows the recipient; it may pass on the receiver's words
    SERVICE = "service"  # a service, in the answer to a request
    REPORT = "report"  # a bounce or delivery report of an accepted message


# Words of a relay about our login, sender or account there, for any recipient.
_OF_RELAY = re.compile(
    r"\brelay(?!\w*\.)|authenticat(?!ion (information|checks))|unauthenticated|\blog ?-?in\b"
    r"|sender address (rejected: )?(not|domain)|bad sender|not owned|rcpthosts|\baccount\b|not verified|quota"
    r"|daily|sending limit|submission|message recipients",
    re.IGNORECASE,
)
# A receiver may demand SPF, DKIM or TLS in a report. Our login at the relay was accepted long before.
_OF_ACCOUNT = re.compile(
    r"\brelay(ing)? (access )?(is )?(denied|not|prohibited)|\blog ?-?in\b|\b(your|sending|sender) account\b"
    r"|\b(send(ing|er)?|submission|your|daily|outbound|outgoing|account) .{0,20}(quota|limit)\b|submission"
    r"|not verified|message recipients",
    re.IGNORECASE,
)
# A mail server's reply, or the name of a receiver, in the words of a service.
_OF_RECEIVER = re.compile(
    r"(?<![\d.])[45]\d\d[ -]#?[45]\.\d{1,3}\.\d{1,3}(?![\d.])|\[TSS?\d+\]"
    r"|\b(remote|receiving|destination|recipient('s)?) (e?-?mail )?(server|host|mx|provider|domain)\b",
    re.IGNORECASE,
)
# The sender of a letter, who is somebody else in another sponsor's mail.
_SENDER = re.compile(
    r"\b(sender|sending|from|originator|originating|source|return.?path)\W{1,3}"
    r"(e-?mail|phone|mobile|address|domain|number|id|identit|name|signature|header|field)"
    r"|\bsend(ing)? (e-?mails? |messages? )?(as|from|for|on behalf of) (this|that|the|your|another)\b"
    r"|\bsender\b.{0,40}\b(not|un\w+|invalid|rejected|denied|refused)\b|\bsender ?id\b|not owned by"
    r"|\b(address|domain|identity|identities|signature)\b.{0,60}\b(not (been )?verified|failed the check)|unverified"
    r"|\b(dmarc|spf|dkim)\b",
    re.IGNORECASE,
)
_LOGIN = re.compile(
    r"\blog(ged|ging)?[ -]?(in|on)\b|password|\bapi ?key|\btoken\b|authentication (is )?(required|failed|needed)"
    r"|\b(quota|limit|balance|credits?|reputation|ip|listed)\b|block ?list|black ?list",
    re.IGNORECASE,
)


def concerns_sender(text: str) -> bool:
    """Tell whether an answer about us concerns the sender of the letter, rather than our login or account."""
    said = text.replace("_", " ")
    return _SENDER.search(said) is not None and _LOGIN.search(said) is None


def concerns_receiver(judged: Judgement, proof: AnswerProof, speaker: Speaker, text: str) -> bool:
    """Tell whether an answer concerns the receiving domain of its message alone.

    Only answers about us or our rate concern more than their message. A relay and a service speak of login, account
    and quota for themselves; a report quotes the receiver.
    """
    if judged.alone or speaker == Speaker.SESSION or not follows_from(judged.cause, proof).by_receiver:
        return False
    if speaker == Speaker.REPORT:
        return _OF_ACCOUNT.search(text) is None
    if speaker == Speaker.SERVICE and _OF_RECEIVER.search(text) is None:
        return False
    return _OF_RELAY.search(text) is None


def is_about_us(enhanced: str, text: str, basic: str = "") -> bool:
    """Return True if a refusal concerns us or our quota, not recipient or letter. `enhanced`, `basic`: codes or ""."""
    judged = judge_reply(int(basic) if basic else None, text, enhanced)
    follows = follows_from(judged.cause, AnswerProof.REFUSED)
    return (follows.pauses or follows.waits) and not judged.alone
