"""MJML, from which HTML is made once, when a campaign is accepted; templates stay in it as they are.

The converter (MRML) calls itself for each level of nesting, and deep nesting ends its process without a word. So it
runs in a process of its own, which may take so much memory and time.
"""

import re
import subprocess
import sys

from campaigns.content.templates import MAX_SIZE, Budget, TemplateError

STEPS = 200_000  # of a budget: a process of its own takes about 50 ms
SECONDS = 10  # of the clock; of a processor half of it
TAG = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)", re.DOTALL)
SIGN = "a tag of the template cannot have the sign <; {% if 2 > count %} says it, too"
MEMORY = 1_000_000_000  # bytes
CODE = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS // 2}, {SECONDS // 2}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import mrml
source = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
try:
    html = mrml.to_html(source).content
except OSError as error:
    sys.exit(str(error))
sys.stdout.buffer.write(html[:{MAX_SIZE} + 1].encode("utf-8", "surrogatepass"))
"""


def to_html(source: str, budget: Budget | None = None) -> str:
    """The HTML of a template in MJML. Raises TemplateError, and OverBudget if there is a budget."""
    if len(source) > MAX_SIZE:
        raise TemplateError(f"the body is longer than {MAX_SIZE:,} characters")
    if budget:
        budget.spend(STEPS)
    done = _convert(source.encode("utf-8", "surrogatepass"))
    if done.returncode == 1:
        raise TemplateError(f"the body: the MJML cannot be read: {_sentence(done.stderr)}")
    if done.returncode:
        raise TemplateError("the body: the MJML is nested too deeply, or makes too much HTML")
    html = done.stdout.decode("utf-8", "surrogatepass")
    if len(html) > MAX_SIZE:
        raise TemplateError(f"the body: the HTML of the MJML is longer than {MAX_SIZE:,} characters")
    for tag in set(TAG.findall(source)).difference(TAG.findall(html)):
        if tag not in html:  # as in a class of attributes that no element has
            raise TemplateError(
                f"the body: {tag[:40]} is lost in the HTML of the MJML: it stands where nothing is shown"
            )
    return html


def _convert(source: bytes) -> "subprocess.CompletedProcess[bytes]":
    """Exit code 0: HTML on standard output; 1: a sentence on standard error; else it was ended."""
    command = [sys.executable, "-I", "-c", CODE]  # -I: nothing of ours or of the working directory is imported
    try:
        return subprocess.run(command, input=source, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise TemplateError(f"the body: it takes more than {SECONDS} seconds to make HTML of the MJML") from None


def _sentence(error: bytes) -> str:
    last = error.decode("utf-8", "replace").strip().splitlines()[-1:] or ["unknown"]
    hint = f"; {SIGN}" if "next template" in last[0] else ""
    return last[0].replace(" in root template", "") + hint
