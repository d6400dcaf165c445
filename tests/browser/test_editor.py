"""Letters are written in a real browser: one text in two views, fields as chips, a preview that follows."""

import base64
import re
import uuid
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.lists.drafts import keeping
from campaigns.lists.intake.files import NewFile
from campaigns.models import Draft, TemplateVersion
from tests import factories
from tests.browser.conftest import Browsing, LoggedIn
from vendors.history import Actor

pytestmark = pytest.mark.django_db(transaction=True)
SIMPLE = (
    '<h1>Hello {{ name }}</h1>\n<p>Your <strong>order</strong> of {{ day|default("today") }} &amp; more,\n  see '
    '<a href="https://example.com/?who={{ name }}">here</a>.</p>\n{% if vip and 1 < 2 %}<p>Dear <em>VIP</em></p>'
    "{% endif %}\n<ul>{% for one in orders %}<li>{{ one }}</li>{% endfor %}</ul>"
)
NEWSLETTER = """<!DOCTYPE html>
<html><head><style>@media (max-width:600px){#head{color:red}} .x{padding:0}</style></head>
<body bgcolor="#EEE"><!--[if mso]><b>mso</b><![endif]--><table><tr>{% if vip %}
<td>VIP {{ name }}</td>{% endif %}</tr></table></body></html>
"""
LOSSY = (
    NEWSLETTER,
    "<table><tr><td>one</td></tr></table>",
    "<p>one</p><!-- kept -->",
    "<style>p { color: red }</style><p>one</p>",
    '<p onclick="x()">one</p>',
    '<form><input name="subject" value="stolen"></form>',
    "<p {{ attributes }}>one</p>",
    "Hello {% if x %}<p>one</p>{% endif %}",
    "<p id=top>one</p>",
    "<p>one</p><hr>",
    "<mj-text>one</mj-text>",
    "<p></p><p>one</p>",
    '<p><span style="mso-x:y" data-x="1">one</span></p>',
    "<p>a\u200bb</p>",
    '<p style="{% if x %}color:red{% endif %}" hx-get="/">one</p>',
)
# What is typed as source, and what Write stores of it as soon as something is changed there.
KEPT = {
    SIMPLE: (
        '<h1>Hello {{ name }}</h1>\n<p>Your <strong>order</strong> of {{ day|default("today") }} &amp; more, see '
        '<a href="https://example.com/?who={{ name }}">here</a>.</p>\n{% if vip and 1 < 2 %}\n<p>Dear <em>VIP</em></p>'
        "\n{% endif %}\n<ul>{% for one in orders %}<li>{{ one }}</li>{% endfor %}</ul>"
    ),
    "": "",
    "Hello {{ name }}": "<div>Hello {{ name }}</div>",
    "<p>one</p>\n\n  <p>two</p>": "<p>one</p>\n<p>two</p>",
    "Dear {{ name }},<br><br>one<br>two": (
        "<div>Dear {{ name }},</div>\n<div><br></div>\n<div>one</div>\n<div>two</div>"
    ),
    **{
        same: same
        for same in (
            '<p style="color: #c00; text-align:center">one <span style="color:blue">two</span></p>',
            "<div><p>one</p></div>\n<p><br></p>",
            "<blockquote><p>one</p></blockquote>\n<ol><li>one</li><li>two <b>three</b></li></ol>",
            '<p class="{{ kind }}">{% if a < b %}less{% else %}more{% endif %}</p>',
            "{# a word to ourselves: <b> #}\n<p>10&nbsp;000 {{ x|default('\"<') }}</p>",
        )
    },
    "{% raw %}{{ x }}{% endraw %}<p>one</p>": "<div>{% raw %}{{ x }}{% endraw %}</div>\n<p>one</p>",
    '<p><img src="cid:logo.png" alt="Logo" width="20"></p>': (
        '<p><img src="cid:logo.png" alt="Logo" width="20"><br></p>'
    ),
}
RED_DOT = "R0lGODdhAQABAIAAAP8AAAAAACwAAAAAAQABAAACAkQBADs="
PASTE = """(view, html) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/html", html);
  clipboardData.setData("text/plain", "plain");
  view.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}"""
HOSTILE = """<html><head><style>p { color: red }</style></head><body><!--StartFragment-->
<p class=MsoNormal style="mso-x:y" onclick="window.hit=1"><b>Good</b> <span style="font-family:Arial">{{ name }}</span>
<img src=x onerror="window.hit=1"><o:p></o:p></p><script>window.hit=1</script>
<p class=MsoListParagraph><!--[if !supportLists]--><span>\uf0b7<span>&nbsp;&nbsp; </span></span><!--[endif]-->One</p>
<table><tr><td>a</td><td>b</td></tr></table><a href="javascript:window.hit=1">bad</a>
<a href="https://example.com/">good</a>
<form><input name=subject value=x></form><svg onload="window.hit=1"></svg><p>and go on</p>
<!--EndFragment--></body></html>"""


def prepared() -> None:
    factories.sponsor("Acme")
    factories.credential(factories.vendor(casters=None))


def view(page: Page) -> Locator:
    return page.locator("[data-view]")


def preview(page: Page) -> Any:
    return page.frame_locator(".follows iframe.letter")


def kept_template(body: str) -> str:
    """Answers the path of its editor."""
    sponsor = factories.sponsor("Acme")
    version = versions.add_version(
        sponsor.pk, "Welcome", "email", TemplateContent("Hi", body, True), Actor("bob")
    ).version
    return f"/templates/{version.template_id}/edit/"


def type_and_take_back(page: Page) -> None:
    """So that Write stores the text anew."""
    view(page).press("Control+End")
    page.keyboard.type("x")
    page.keyboard.press("Backspace")


def paste(page: Page, html: str) -> None:
    view(page).evaluate(PASTE, html)


def test_the_preview_shows_the_campaigns_own_pictures(window: Browsing) -> None:
    sponsor = factories.sponsor("Acme")
    login = factories.credential(factories.vendor(casters=None))
    draft = Draft.objects.create(
        sponsor=sponsor, key=uuid.uuid4(), name="May", subject="Hi", credential=login, html="<p>Hello</p>"
    )
    content = base64.b64decode(RED_DOT)
    keeping.attach_files(draft, [NewFile("dot.gif", len(content), lambda: content)], [])
    page = window.open(f"/drafts/{draft.pk}/message/")
    expect(preview(page).locator("p")).to_have_text("Hello")
    page.get_by_role("button", name="HTML", exact=True).click()
    page.locator("#id_html").fill("<p>Look: <img src='cid:dot.gif' alt='dot'></p>")
    expect(preview(page).get_by_alt_text("dot")).to_have_js_property("naturalWidth", 1)


def test_what_is_written_is_the_textareas_and_the_preview_follows(window: Browsing) -> None:
    prepared()
    page = window.open("/campaigns/new/")
    page.get_by_label("Name of the campaign").fill("May")
    page.get_by_label("Subject").fill("Hello ")
    page.get_by_role("button", name="{{ recipient }}").click()
    expect(page.get_by_label("Subject")).to_have_value("Hello {{ recipient }}")
    view(page).click()
    page.keyboard.type("Dear ")
    page.get_by_label("Name of another field").fill("first_name")
    page.keyboard.press("Enter")
    page.keyboard.type(", this is ")
    page.get_by_role("button", name="Bold").click()
    page.keyboard.type("new")
    box = page.locator("#id_html")
    expect(box).to_have_value("<p>Dear {{ first_name }}, this is <b>new</b></p>")
    expect(view(page).locator(".chip")).to_have_text("first_name")
    expect(preview(page).locator("p")).to_have_text("Dear [first_name], this is new")
    expect(page.locator(".follows .facts")).to_contain_text("Hello ann@example.com")
    page.keyboard.type(" for {{ day }}!")
    expect(view(page).locator(".chip")).to_have_text(["first_name", "day"])
    expect(box).to_have_value("<p>Dear {{ first_name }}, this is <b>new for {{ day }}!</b></p>")
    page.keyboard.press("Control+z")
    expect(box).to_have_value("<p>Dear {{ first_name }}, this is <b>new for {{ day }}</b></p>")
    page.get_by_role("button", name="Redo").click()
    expect(box).to_have_value("<p>Dear {{ first_name }}, this is <b>new for {{ day }}!</b></p>")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    expect(view(page).locator(".chip")).to_have_text(["first_name"])
    expect(box).to_have_value(re.compile("^<p>Dear {{ first_name }}, this is <b>new for ?</b></p>$"))
    page.get_by_role("button", name="HTML", exact=True).click()
    box.fill("<p>As <i>source</i> {{ name }}</p>")
    expect(preview(page).locator("p")).to_have_text("As source [name]")
    page.get_by_role("button", name="Write").click()
    expect(view(page).locator("i")).to_have_text("source")
    with page.expect_navigation():
        page.get_by_role("button", name="Keep", exact=True).click()
    assert Draft.objects.get().html == "<p>As <i>source</i> {{ name }}</p>"
    for width in (390, 768, 1280):
        window.resize(width)
        window.fits("editor-message")
    with page.expect_navigation():
        page.get_by_role("button", name="Deutsch").click()
    expect(view(page)).to_be_visible()
    window.fits("editor-message-german")


def test_write_is_offered_where_nothing_is_lost_and_says_elsewhere_why_not(window: Browsing) -> None:
    """Opening changes nothing, whatever the text is; of what it shows, an edit changes the edited only."""
    prepared()
    page = window.open("/campaigns/new/")
    box, source, write = (
        page.locator("#id_html"),
        *(page.get_by_role("button", name=one, exact=True) for one in ("HTML", "Write")),
    )
    for html, stored in KEPT.items():
        source.click()
        box.fill(html)
        write.click()
        expect(view(page)).to_be_visible()
        expect(box).to_have_value(html)
        type_and_take_back(page)
        expect(box).to_have_value(stored)
    for html in LOSSY:
        source.click()
        box.fill(html)
        write.click()
        expect(view(page)).to_be_hidden()
        expect(page.locator("[data-why]")).to_contain_text("edited as HTML")
        expect(box).to_be_visible()
        expect(box).to_have_value(html)
    assert all("violates" in line for line in window.console), window.console  # pictures of elsewhere are not loaded
    window.console.clear()
    window.strangers.clear()


def test_a_newsletter_that_is_opened_and_saved_is_the_same_version(window: Browsing) -> None:
    page = window.open(kept_template(NEWSLETTER))
    expect(page.locator("[data-why]")).to_contain_text("It holds <!doctype>, which Write would change.")
    expect(preview(page).locator("td")).to_have_text("VIP [name]")
    page.get_by_label("vip").fill("")
    expect(preview(page).locator("td")).to_have_count(0)
    for width in (390, 768, 1280):
        window.resize(width)
        window.fits("editor-template")
    with page.expect_navigation():
        page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("says that already")).to_be_visible()
    assert TemplateVersion.objects.get().body == NEWSLETTER


def test_a_mistake_stands_beside_its_field_and_the_last_good_letter_stays(window: Browsing) -> None:
    page = window.open(kept_template("<p>Dear {{ name }}</p>"))
    expect(preview(page).locator("p")).to_have_text("Dear [name]")
    page.get_by_label("Subject").fill("Hello {{ nam")
    expect(page.locator("[data-fault='subject']")).to_contain_text("The subject, line 1")
    expect(page.locator("[data-stale]")).to_have_text("This is the last text without a mistake.")
    expect(preview(page).locator("p")).to_have_text("Dear [name]")
    window.fits("editor-mistake")
    page.get_by_label("Subject").fill("Hello {{ name }}")
    expect(page.locator("[data-fault='subject']")).to_be_empty()
    expect(page.locator("[data-stale]")).to_be_hidden()
    page.context.clear_cookies(name="sessionid")
    page.get_by_label("Subject").fill("Hi")
    expect(page.locator("[data-stale]")).to_contain_text("log in")
    expect(preview(page).locator("p")).to_have_text("Dear [name]")


def test_a_paste_brings_its_words_and_runs_nothing(window: Browsing) -> None:
    prepared()
    page = window.open("/campaigns/new/")
    view(page).click()
    paste(page, HOSTILE)
    box = page.locator("#id_html")
    expect(box).to_have_value(re.compile("and go on"))
    text = box.input_value()
    assert "<b>Good</b> {{ name }}" in text and "a b" in text and '<a href="https://example.com/">' in text
    held = re.findall(r"<(\w+)", text)
    assert set(held) <= {"p", "div", "b", "a", "br"}, text
    assert not re.search("style|class|onerror|onclick|javascript|mso|\\uf0b7|&nbsp;&nbsp;", text), text
    assert view(page).locator(".chip").count() == 1
    assert page.evaluate("[window.hit, document.forms.length, document.querySelectorAll('[name=subject]').length]") == [
        None,
        page.evaluate("document.forms.length"),
        1,
    ]
    assert all("violates" in line for line in window.console), window.console
    window.console.clear()


def test_by_the_keyboard_alone(window: Browsing) -> None:
    prepared()
    page = window.open("/campaigns/new/")
    bar, box = page.get_by_role("toolbar", name="Formatting"), page.locator("#id_html")
    window.tab_to(view(page))
    page.keyboard.type("one two")
    page.keyboard.press("Alt+F10")
    expect(bar.get_by_role("button", name="Bold")).to_be_focused()
    page.keyboard.press("End")
    expect(bar.get_by_role("button", name="Redo")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(bar.get_by_role("button", name="Link")).to_be_focused()
    page.keyboard.press("Tab")
    expect(view(page)).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("textbox", name="Where does the link lead?")).to_be_focused()
    window.accessible("link")
    page.keyboard.type("example.com/?who={{ name }}")
    page.keyboard.press("Enter")
    expect(box).to_have_value('<p><a href="https://example.com/?who={{ name }}">one two</a></p>')
    page.keyboard.press("Control+k")
    page.get_by_role("textbox", name="Where does the link lead?").fill("javascript:alert(1)")
    page.keyboard.press("Enter")
    expect(view(page)).to_be_focused()
    expect(box).to_have_value('<p><a href="https://example.com/?who={{ name }}">one two</a></p>')
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(bar.get_by_role("button", name="Heading", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(box).to_have_value('<h1><a href="https://example.com/?who={{ name }}">one two</a></h1>')


def test_a_chip_is_passed_chosen_and_removed_as_a_whole(window: Browsing) -> None:
    prepared()
    page = window.open("/campaigns/new/")
    box, press = page.locator("#id_html"), page.keyboard.press
    view(page).click()
    page.keyboard.type("{{ one }}{{ two }}")
    press("ArrowLeft")
    page.keyboard.type("x")
    expect(box).to_have_value("<p>{{ one }}x{{ two }}</p>")
    press("Home")
    page.keyboard.type("y")
    expect(box).to_have_value("<p>y{{ one }}x{{ two }}</p>")
    press("Delete")
    expect(box).to_have_value("<p>yx{{ two }}</p>")
    view(page).locator(".chip").click()
    page.keyboard.type("z")
    expect(box).to_have_value(re.compile("^<p>yxz(<br>)?</p>$"))
    press("Control+z")
    expect(box).to_have_value("<p>yx{{ two }}</p>")
    press("Control+a")
    press("Backspace")
    expect(box).to_have_value("")
    page.keyboard.type("{{ three }}!")
    press("Backspace")
    press("Backspace")
    expect(box).to_have_value("")
    page.keyboard.type("on")
    expect(box).to_have_value("<p>on</p>")


def test_an_sms_has_fields_and_a_preview_but_no_html(window: Browsing) -> None:
    factories.sponsor("Acme")
    factories.credential(factories.vendor(channel="sms", casters=None))
    page = window.open("/campaigns/new/")
    expect(page.get_by_label("Text", exact=True)).to_be_visible()
    expect(view(page)).to_be_hidden()
    expect(page.get_by_label("Subject")).to_be_hidden()
    page.get_by_label("Text", exact=True).fill("Your code: ")
    page.get_by_label("Name of another field").fill("code")
    page.get_by_role("button", name="Insert").click()
    expect(page.get_by_label("Text", exact=True)).to_have_value("Your code: {{ code }}")
    expect(page.locator(".follows pre")).to_have_text("Your code: [code]")
    expect(page.locator(".follows .facts")).to_contain_text("Segments")
    page.get_by_label("Text", exact=True).fill("Your code: {{ code")
    expect(page.locator("[data-fault='text']")).to_contain_text("The body, line 1")
    window.fits("editor-sms")


def test_without_scripts_there_are_the_textareas(logged_in: LoggedIn) -> None:
    sponsor = factories.sponsor("Acme")
    factories.credential(factories.vendor(casters=None))
    ann = logged_in("ann", "campaign owner", of=sponsor, page="/campaigns/new/", scripts=False)
    page = ann.page
    expect(view(page)).to_be_hidden()
    expect(page.get_by_label("Name of another field")).to_be_hidden()
    expect(page.locator(".follows")).to_be_hidden()
    page.get_by_label("Name of the campaign").fill("May")
    page.get_by_label("Subject").fill("Hello")
    page.locator("#id_html").fill(NEWSLETTER)
    page.get_by_role("button", name="Keep", exact=True).click()
    page.wait_for_url("**/drafts/*/message/")
    assert Draft.objects.get().html == NEWSLETTER
    ann.screenshot("editor-plain")
