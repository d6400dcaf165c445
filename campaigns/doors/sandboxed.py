"""Shows untrusted HTML within a page, in a frame without scripts, forms, or anything from other servers.

The page gives `frame_content` to an iframe as its srcdoc, with sandbox="", and passes its answer through
`guard_frames`. Without that, a link in the frame could load another page.
"""

import re
from base64 import b64encode
from collections.abc import Iterable

from django.http import HttpResponse

from campaigns.texts.parts import IMAGE
from vendors.adapters.base import Attachment

SHOWN = "img-src data:; font-src data:; style-src 'unsafe-inline'"
RULES = f"default-src 'none'; {SHOWN}; form-action 'none'; base-uri 'none'"
HEAD = f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{RULES}">'
INHERITED = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-src 'none'"
STYLE = ":root { font: 16px/1.5 system-ui, sans-serif } a, area { pointer-events: none !important }"
STILL = f'<meta name="referrer" content="no-referrer"><style>{STYLE}</style>'


def frame_content(html: str) -> str:
    """Return the HTML as the content of a frame; the rules precede all of it."""
    return f"{HEAD}{STILL}{html}"


def show_images(html: str, files: Iterable[Attachment]) -> str:
    """Return the HTML with each image that it shows as cid:NAME in it as data; others stay."""
    given = {one.cid: one for one in files if one.cid}

    def image_as_data(found: re.Match[str]) -> str:
        image = given.get(found[1])
        if image is None:
            return found[0]
        before = found[0][: found.start(1) - found.start() - len("cid:")]
        return f"{before}data:{image.content_type};base64,{b64encode(image.content).decode()}"

    return IMAGE.sub(image_as_data, html) if given else html


def allow_own_frames(answer: HttpResponse) -> HttpResponse:
    """Return the answer with a policy that its frames show our pages only, so links in them cannot lead elsewhere."""
    answer.headers["Content-Security-Policy"] = "frame-src 'self'"
    return answer


def guard_frames(answer: HttpResponse) -> HttpResponse:
    """Return the answer with a policy that its frames load no page and nothing from elsewhere; frames inherit it."""
    answer.headers["Content-Security-Policy"] = INHERITED
    return answer
