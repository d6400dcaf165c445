"""What is wrong with a vendor's description is German for who reads German, every sentence of it."""

import ast
import json
import re
from pathlib import Path

import pytest
from django.utils import translation

from tests.described.test_descriptions import GOOD
from tests.owners.test_languages import GERMAN
from vendors.adapters.options import InvalidSettings
from vendors.described.adapter import Described
from vendors.described.reading import InvalidDescription, read_entered
from vendors.said import show

FOLDER = Path(__file__).parents[2] / "vendors/described"
ENGLISH = {"must", "should", "input", "string", "value", "missing", "needs"}  # what is in no German sentence


def test_each_sentence_about_a_description_carries_its_form_and_values():
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Yield(ast.Tuple([_, said])) | ast.Call(ast.Name("Fault"), [_, _, said]):
                    assert not isinstance(said, ast.Constant | ast.JoinedStr), f"{path.name}: {ast.unparse(node)}"


SECRETS = "".join(f'a{n} = "a"\n' for n in range(11))
KINDS = json.dumps(["kind"] * 11)
SHAPELESS = f"""[vendor]
name = 7
channel = "pigeon"
documents = ""
[settings.a]
about = "a"
default = 7.5
pattern = "("
[request]
url = "https://pigeon.example/{{settings.b}}"
timeout = "soon"
concurrency = 0
batch = 5000
auth = 7
headers = 7
[request.recipients]
to = "a"
variables = "b"
variable = "NAME"
own = "x"
[answer]
one_id = "x"
rules = [{{status = 400, is = "refused", contract = "x", body = {{a = [7.5]}}}}, 7]
[dedupe]
seconds = 0
contract = "{"x" * 1001}"
[reports]
kind = {KINDS}
[reports.kinds]
[reports.signature]
scheme = "hmac"
prefix = "{"x" * 30}"
over = "{{url}}"
[address]
one_of = {["c"] * 21}
[secret]
{SECRETS}"""


@pytest.mark.parametrize("source", [SHAPELESS, SHAPELESS.replace(KINDS, "[]"), "a", "x" * 70_000])
def test_the_shape_of_a_description_is_explained_in_german(source):
    with pytest.raises(InvalidDescription) as error:
        read_entered(source)
    with translation.override("de"):
        shown = [show(one) for one in error.value.errors]
    shown = [re.sub("(Ausdruck|TOML): .*", "", one) for one in shown]  # after these Python says what is wrong
    assert not [one for one in shown if not one.startswith("Beschreibung, Zeile ")]
    assert not [one for one in shown if ENGLISH & set(re.findall(r"\w+", one.split(": ", 1)[1]))]


OF_SETTINGS = """[settings.page]
about = "a"
default = ""
pattern = "[0-9]+"
[settings.most]
about = "a"
kind = "number"
"""


@pytest.mark.parametrize(
    ("settings", "german"),
    [
        ({}, "Beschreibung: muss der Text einer Beschreibung sein oder der Name einer mitgelieferten: infobip, "),
        ({"description": "pigeon"}, "Beschreibung: ist weder der Text einer Beschreibung noch der Name einer "),
        ({"description": GOOD + OF_SETTINGS, "page": "A"}, "page hat nicht die Form [0-9]+"),
        ({"description": GOOD + OF_SETTINGS, "most": "A"}, "most muss eine ganze Zahl sein"),
        (
            {"description": GOOD.replace("{recipient}", "{secret.name}")},
            "Beschreibung, Zeile 21: request.content.to: {secret.name} steht nicht in [secret]; dort gibt es: token",
        ),
        (
            {"description": GOOD.replace("[secret]", "[secrets]")},
            "Beschreibung, Zeile 18: request.auth.token: {secret.token} steht nicht in [secret]; dort steht nichts",
        ),
        (
            {"description": GOOD.replace('"email"', '"post"')},
            "Beschreibung, Zeile 3: vendor.channel: muss eines von 'print', 'email' oder 'sms' sein",
        ),
    ],
)
def test_what_is_filled_in_is_said_in_german_too(settings, german):
    with pytest.raises(InvalidSettings) as error:
        Described.validate(settings)
    with translation.override("de"):
        assert any(show(one).startswith(german) for one in error.value.errors)
    assert show(error.value.errors[0]) == error.value.errors[0]


@pytest.mark.django_db
def test_the_form_of_a_vendor_says_in_german_what_is_wrong_with_its_description(admin_client):
    wrong = GOOD.replace('token = "{secret.token}"', "").replace("{recipient}", "{recipients}")
    form = {"slug": "new", "name": "new", "channel": "email", "adapter": "described"}
    form["settings"] = json.dumps({"description": wrong})
    page = admin_client.post("/admin/vendors/vendor/add/", form, headers=GERMAN).text
    assert "Zeile 16: request.auth: der Schlüssel token fehlt, den das Schema bearer braucht" in page
    assert "Beschreibung, Zeile 21: request.content.to: {recipients} ist nicht bekannt; es gibt body, " in page
    page = admin_client.post("/admin/vendors/vendor/add/", form).text
    assert "line 16: request.auth: the key token is missing, which the scheme bearer needs" in page
