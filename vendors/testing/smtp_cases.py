"""Misbehaviours of an SMTP relay, with the required outcome of each call."""

from __future__ import annotations

from typing import Literal

from vendors.adapters.smtp_conversation import REPLY_MAX
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused
from vendors.testing.cases import Trial
from vendors.testing.smtp_relay import cut, drip, endless, hang, lose, say

EARLY = {"connect_timeout": "0.3"}
LATE = {"timeout": "0.3"}
"""For calls that only a deadline ends: before and after the end of the mail."""
TOO_MUCH = f"replies of more than {REPLY_MAX} bytes"


def paused(reason: str) -> NotSent:
    return NotSent(reason, scope="credential", pause=True)


def waits(reason: str, scope: Literal["message", "credential"] = "credential") -> NotSent:
    return NotSent(reason, retry_after=30.0, scope=scope)


UNSENT = (NotSent,)
DOUBT = (InDoubt,)
BETWEEN = (NotSent, Accepted)
"""Where a kept connection ends: the mail may go over another one, once."""
SMTP_CASES = [
    Trial("a 554 as greeting", {"greeting": say("554 5.7.1 go away")}, paused("smtp 554 at connect: 5.7.1 go away"),
         fresh=True),
    Trial("a 421 as greeting", {"greeting": say("421 4.3.2 full", close=True)},
         waits("smtp 421 at connect: 4.3.2 full"),
         fresh=True),
    Trial("no greeting", {"greeting": hang}, UNSENT, EARLY, fresh=True),
    Trial("an end as greeting", {"greeting": lose}, UNSENT, fresh=True),
    Trial("a reset as greeting", {"greeting": cut}, UNSENT, fresh=True),
    Trial("HTTP as greeting", {"greeting": say("HTTP/1.1 400 Bad Request")}, UNSENT, fresh=True),
    Trial("an endless greeting", {"greeting": endless(b"220-hello\r\n" * 500)}, NotSent(TOO_MUCH), fresh=True),
    Trial("an endless empty greeting", {"greeting": endless(b"220-\r\n" * 500)}, NotSent(TOO_MUCH), fresh=True),
    Trial("an endless line as greeting", {"greeting": endless(b"220 hello" * 500)}, NotSent(TOO_MUCH), fresh=True),
    Trial("a slow greeting", {"greeting": endless(b"220-hello\r\n", 0.02)}, UNSENT, EARLY, fresh=True),
    Trial("a 550 to EHLO", {"ehlo": say("550 no")}, paused("smtp 550 at hello: no"), fresh=True),
    Trial("an end at EHLO", {"ehlo": lose}, UNSENT, fresh=True),
    Trial("a 550 to MAIL", {"mail": say("550 5.7.1 not you")}, paused("smtp 550 at mail: 5.7.1 not you")),
    Trial("a 451 to MAIL", {"mail": say("451 later")}, waits("smtp 451 at mail: later")),
    Trial("an end at MAIL", {"mail": lose}, UNSENT, fresh=True),
    Trial("a reset at MAIL", {"mail": cut}, UNSENT, fresh=True),
    Trial("an end before a mail", {"mail": lose}, BETWEEN),
    Trial("a reset before a mail", {"mail": cut}, BETWEEN),
    Trial("a 550 to RCPT", {"rcpt": say("550 5.1.1 unknown")}, Refused("550", "5.1.1")),
    Trial("a 550 in lines to RCPT", {"rcpt": say("550-5.1.1 un", "550 5.1.1 known")}, Refused("550", "5.1.1")),
    Trial("a 550 in pieces to RCPT", {"rcpt": drip("550-5.1.1 un", "550 5.1.1 known")}, Refused("550", "5.1.1")),
    Trial("a 550 to RCPT and a 354 to DATA", {"rcpt": say("550 no"), "data": say("354 go on")}, Refused("550")),
    Trial("a 450 to RCPT", {"rcpt": say("450 4.2.0 grey")}, waits("smtp 450 at rcpt: 4.2.0 grey", "message")),
    Trial("a 421 to RCPT", {"rcpt": say("421 bye", close=True)}, waits("smtp 421 at rcpt: bye")),
    Trial("a 530 to RCPT", {"rcpt": say("530 login")}, paused("smtp 530 at rcpt: login")),
    Trial("an end at RCPT", {"rcpt": lose}, UNSENT),
    Trial("no reply to RCPT", {"rcpt": hang}, UNSENT, EARLY),
    Trial("garbage at RCPT", {"rcpt": say("hm")}, UNSENT),
    Trial("a 554 to DATA", {"data": say("554 5.5.1 no")}, Refused("554", "5.5.1")),
    Trial("a 451 to DATA", {"data": say("451 later")}, waits("smtp 451 at data: later", "message")),
    Trial("a 250 to DATA", {"data": say("250 what")}, UNSENT),
    Trial("a 421 to DATA", {"data": say("421 bye", close=True)}, waits("smtp 421 at data: bye")),
    Trial("two replies to RCPT", {"rcpt": say("250 Ok", "250 Ok")}, UNSENT),
    Trial("no reply to DATA", {"data": hang}, UNSENT, EARLY),
    Trial("an end at DATA", {"data": lose}, UNSENT),
    Trial("a 354 and a 552", {"data": say("354 go on", "552 5.3.4 too big", close=True)}, Refused("552", "5.3.4")),
    Trial("a 354 and a 421", {"data": say("354 go on", "421 bye", close=True)}, (NotSent,)),
    Trial("a 354 and an end", {"data": say("354 go on", close=True)}, (NotSent, InDoubt)),
    Trial("a 250 to the mail", {"dot": say("250 Ok: queued as A1B2")}, Accepted("A1B2")),
    Trial("a 250 in lines to the mail", {"dot": say("250-2.0.0 fine", "250 2.0.0 thanks")},
         Accepted("250 2.0.0 fine 2.0.0 thanks")),
    Trial("a 250 in pieces to the mail", {"dot": drip("250-2.0.0 fine", "250 queued as A1B2")}, Accepted("A1B2")),
    Trial("a 250 and an end", {"dot": say("250 Ok: queued as A1B2", close=True)}, Accepted("A1B2")),
    Trial("control signs in a 250", {"dot": say("250 a\0b\x1b[0m")}, Accepted("250 a?b?[0m")),
    Trial("a 552 to the mail", {"dot": say("552 5.3.4 too big")}, Refused("552", "5.3.4")),
    Trial("a 451 to the mail", {"dot": say("451 4.3.0 later")}, waits("smtp 451 at dot: 4.3.0 later", "message")),
    Trial("a 454 to the mail", {"dot": say("454 rate exceeded")}, waits("smtp 454 at dot: rate exceeded")),
    Trial("a 421 to the mail", {"dot": say("421 bye", close=True)}, waits("smtp 421 at dot: bye")),
    Trial("a 354 to the mail", {"dot": say("354 more")}, DOUBT),
    Trial("an end after the mail", {"dot": lose}, DOUBT),
    Trial("a reset after the mail", {"dot": cut}, DOUBT),
    Trial("no reply to the mail", {"dot": hang}, DOUBT, LATE),
    Trial("a slow reply to the mail", {"dot": endless(b"250-slow\r\n", 0.02)}, DOUBT, LATE),
    Trial("an endless reply to the mail", {"dot": endless(b"250-and more\r\n" * 500)}, InDoubt(TOO_MUCH)),
    Trial("garbage after the mail", {"dot": say("thanks")}, DOUBT),
    Trial("an unfinished reply to the mail", {"dot": say("250-half", close=True)}, DOUBT),
]  # fmt: skip
