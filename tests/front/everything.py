"""All that a program can have behind the API, and all endpoints of the API as its schema names them.

An endpoint that is added is found here by itself. If it has a parameter that is not in `things` yet, tests say so.
"""

import functools
from dataclasses import dataclass

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.doors import public_ids
from campaigns.integrations.results import writer
from campaigns.integrations.webhooks import events
from campaigns.models import Job, RecipientAnswer, Session, Topic, WebhookCall
from mailhub.front.api import api
from tests.campaigns.rows import accepted
from tests.front.program import Program, letter
from tests.front.test_sessions import end
from vendors.history import Actor

OF_VENDORS = "/api/v1/receipts/{vendor}"  # signed by a vendor; no API key opens it
URL = "https://receiver.example/very-own-hook"
REFERENCE, RUN, TEMPLATE, TOPIC = "very-own-reference", "very-own-run", "very-own-template", "very-own-topic"
ANSWER = "very-own-answer"


@functools.cache
def operations() -> tuple[tuple[str, str], ...]:
    """Method and path of every endpoint."""
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    return tuple(sorted((method, path) for path, methods in paths.items() for method in methods))


@dataclass
class Everything:
    """What one program has: things by the names of the paths' parameters."""

    things: dict[str, str]

    @property
    def secrets(self) -> set[str]:
        """What nobody else may see."""
        return {URL, REFERENCE, RUN, ANSWER, *(thing for name, thing in self.things.items() if name != "vendor")}


def everything(program: Program, vendor) -> Everything:
    """A finished session with a message, a webhook, an event that waits, a template, a topic and an answer."""
    hook, _ = events.create_webhook(program.sponsor, URL, [], test=False)
    recipients = [{"to": "ann@sandbox.example", "reference": REFERENCE}]
    sent = program.send(letter(vendor, recipients=recipients, metadata={"run": RUN}), "very-own-key")
    assert sent.status_code == 202, sent.content
    job = Job.objects.get(session=Session.objects.get(sponsor=program.sponsor))
    end(job, [accepted("very-own-id")])
    writer.write_result(job.session.pk)
    call = WebhookCall.objects.filter(webhook=hook, kind="message.sent").get()
    file = program.client.post("/api/v1/files", b"very-own-file", content_type="application/octet-stream")
    added = versions.add_version(
        program.sponsor.pk, TEMPLATE, "email", TemplateContent("Hello", "Good day"), Actor("ann")
    )
    answer = RecipientAnswer.objects.create(
        sponsor=program.sponsor, channel="sms", kind="sms", name=f"sms {program.sponsor.pk}", sender="+1", text=ANSWER
    )
    return Everything(
        {
            "template": added.version.template.name,
            "topic": Topic.objects.create(sponsor=program.sponsor, name=TOPIC, title=TOPIC).name,
            "file_id": file.json()["id"],
            "session_id": sent.json()["id"],
            "message_id": public_ids.id_of_number("msg", job.first_message),
            "webhook_id": public_ids.id_of_number("whk", hook.pk),
            "event_id": f"evt_{call.event.hex}",
            "vendor": vendor.slug,
            "answer_id": public_ids.id_of_number("ans", answer.pk),
        }
    )
