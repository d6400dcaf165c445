"""HTML that others wrote, shown within a page: in a frame without scripts, forms, and anything from elsewhere.

The page gives `framed` to an iframe as its srcdoc, with sandbox="", and its answer to `guarded`: a link within the
frame would else lead the frame elsewhere.
"""

from django.http import HttpResponse

SHOWN = "img-src data:; font-src data:; style-src 'unsafe-inline'"
RULES = f"default-src 'none'; {SHOWN}; form-action 'none'; base-uri 'none'"
HEAD = f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{RULES}">'
INHERITED = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-src 'none'"
STILL = '<meta name="referrer" content="no-referrer"><style>a, area { pointer-events: none !important }</style>'


def framed(html: str) -> str:
    """The HTML as the content of a frame; the rules stand before all that it can say."""
    return f"{HEAD}{STILL}{html}"


def only_ours(answer: HttpResponse) -> HttpResponse:
    """The answer, whose frames show pages of ours and cannot be led elsewhere by a link within them."""
    answer.headers["Content-Security-Policy"] = "frame-src 'self'"
    return answer


def guarded(answer: HttpResponse) -> HttpResponse:
    """The answer, of which no frame can load a page, nor anything else from elsewhere: a frame inherits its rules."""
    answer.headers["Content-Security-Policy"] = INHERITED
    return answer
