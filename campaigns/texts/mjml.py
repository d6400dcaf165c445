"""Converts MJML to HTML once, when a campaign is accepted. Template tags stay in it unchanged.

The converter (MRML) is recursive, and deep nesting crashes its process. So it runs in a process of its own, with limits
of memory and time.
"""

import subprocess

from campaigns.texts import apart
from campaigns.texts.templates import MAX_SIZE, MAX_TOKENS, PARTS, TAG, Budget, TemplateError
from vendors.said import Said

SIGN = "a tag of the template cannot have the sign <; {% if 2 > count %} says it, too"
CODE = f"""
import sys
import mrml
source = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
try:
    html = mrml.to_html(source).content
except OSError as error:
    sys.exit(str(error))
sys.stdout.buffer.write(html[:{MAX_SIZE} + 1].encode("utf-8", "surrogatepass"))
"""


def mjml_to_html(source: str, budget: Budget | None = None) -> str:
    """Return the HTML of a template in MJML. Raises TemplateError, and OverBudget if there is a budget."""
    if len(source) > MAX_SIZE:
        raise TemplateError(Said("the body is longer than %(most)s characters", most=MAX_SIZE))
    if budget:
        budget.spend_budget(apart.STEPS)
    done = _run_conversion(source)
    if done.returncode == 1:
        raise _unfit_mjml(Said("the MJML cannot be read: %(error)s", error=_conversion_fault(done.stderr)))
    if done.returncode:
        raise _unfit_mjml(Said("the MJML is nested too deeply, or makes too much HTML"))
    html = done.stdout.decode("utf-8", "surrogatepass")
    if len(html) > MAX_SIZE:
        raise _unfit_mjml(Said("the HTML of the MJML is longer than %(most)s characters", most=MAX_SIZE))
    tags = set(TAG.findall(source))
    if len(tags) > MAX_TOKENS:
        raise TemplateError(Said("the body has more than %(most)s parts", most=MAX_TOKENS))
    for tag in tags.difference(TAG.findall(html)):
        if tag not in html:  # for example, in a class of attributes that no element uses
            raise _unfit_mjml(
                Said("%(name)s is lost in the HTML of the MJML: it stands where nothing is shown", name=tag[:40])
            )
    return html


def _run_conversion(source: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return apart.run_apart(CODE, source)
    except apart.TookTooLong:
        why = Said("it takes more than %(seconds)s seconds to make HTML of the MJML", seconds=str(apart.SECONDS))
        raise _unfit_mjml(why) from None


def _unfit_mjml(why: Said) -> TemplateError:
    return TemplateError(Said(PARTS["body"].fault, why=why))


def _conversion_fault(error: bytes) -> str:
    last = error.decode("utf-8", "replace").strip().splitlines()[-1:] or ["unknown"]
    hint = f"; {SIGN}" if "next template" in last[0] else ""
    return last[0].replace(" in root template", "") + hint
