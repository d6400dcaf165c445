"""Owners' pages of templates, in a real browser: they fit, and the frame of a letter reaches nothing."""

import pytest
from playwright.sync_api import expect

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from tests import factories
from tests.browser.conftest import WIDTHS
from vendors.history import Actor

pytestmark = pytest.mark.django_db(transaction=True)
HTML = """<h1>Hello {{ name }}</h1><p>Your order of {{ day }} is on its way.</p>
<img src="http://pictures.example/pixel.png"><p><a href="http://elsewhere.example/" target="_self">Look</a></p>
<script>document.body.textContent = "a script ran"</script>"""


@WIDTHS
def test_a_template_its_editor_and_its_differences(window, width):
    sponsor = factories.sponsor()
    for number, body in enumerate((HTML, HTML.replace("order", "parcel")), start=1):
        content = TemplateContent("Your order, {{ name }}", body, html=True)
        template = versions.add_version(
            sponsor.pk, "On its way", "email", content, Actor("bob"), f"draft {number}"
        ).version
    pk, failed = template.template_id, {}
    window.page.on("requestfailed", lambda request: failed.setdefault(request.url, request.failure))
    window.resize(width)
    page = window.open(f"/templates/{pk}/")
    letter = page.frame_locator("iframe.letter")
    assert letter.locator("h1").inner_text() == "Hello [name]"
    window.fits("template")
    letter.locator("a").dispatch_event("click")
    window.open(f"/templates/{pk}/edit/")
    page.get_by_label("Subject").fill("Hi")
    page.get_by_role("button", name="Preview").click()
    expect(letter.locator("p").first).to_contain_text("Your parcel of [day]")
    window.fits("template-edit")
    window.open(f"/templates/{pk}/differences/")
    window.fits("template-differences")
    window.open("/templates/new/")
    window.fits("template-new")
    window.open("/templates/")
    window.fits("templates")
    assert {failed.get(url) for url in window.strangers} <= {"csp"}, "what the browser refuses itself reaches nobody"
    window.strangers.clear()
    refused = [line for line in window.console if "violates" in line or "sandboxed" in line]
    assert refused == window.console and refused, "the browser says what the frame may not do, and nothing else"
    window.console.clear()
