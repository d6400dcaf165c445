"""Help texts of fields in operators' forms, in the language of the page.

The models have them in English; they are repeated here for the translation catalogue.
"""

from django.apps import apps
from django.utils.translation import gettext_lazy, gettext_noop

HELP = (
    gettext_noop("Of the page on which recipients unsubscribe; empty: that of their browser"),
    gettext_noop("Like GB: in whose form its lists write phone numbers without + and country code; empty: none"),
    gettext_noop("It may mark campaigns as transactional"),
    gettext_noop("Campaigns of more recipients wait until a second person approves them; 0: all, empty: none"),
    gettext_noop("From then on no SMS goes out, by the clock where the recipient's number is; transactional ones do"),
    gettext_noop("... and from then on again."),
    gettext_noop("Of the quiet hours, where it is not known where a number is"),
    gettext_noop(
        "Percent of a day's e-mails to one provider about which recipients complain, from which operators are warned; "
        "empty: the installation's, 0: never"
    ),
    gettext_noop(
        "Percent of a day's e-mails to one provider about which recipients complain, from which bulk mail to it "
        "pauses; empty: the installation's, 0: never"
    ),
    gettext_noop("Percent of the accepted"),
    gettext_noop("Users who see this sponsor's mail; those with the permission for all sponsors need not be listed."),
    gettext_noop("By which campaigns and programs name it"),
    gettext_noop("As recipients read it, like Weekly offers"),
    gettext_noop("Nobody can unsubscribe from it, and who has done so gets it, too"),
    gettext_noop("The body is HTML: fields are escaped in it."),
    gettext_noop("Beside an HTML body; a template, too."),
    gettext_noop("Further headers of e-mail: names with values"),
    gettext_noop("Fields that name a recipient's own files"),
    gettext_noop("Not before this time; empty: by the job's mode."),
    gettext_noop("Sending hours, local: calls start from then on"),
    gettext_noop("... and none start from then on."),
    gettext_noop("Of the sending hours"),
    gettext_noop("Hours by each recipient's clock: from then on"),
    gettext_noop("... and until then."),
    gettext_noop("What was not called by then expires."),
    gettext_noop("Percent, beyond which the campaign pauses itself; empty: the installation's limit, 0: never"),
    gettext_noop("Of a parent: messages not yet cut into a child"),
    gettext_noop("Waits until then"),
    gettext_noop("Why it waits"),
    gettext_noop("Then it waits for somebody to let the rest go"),
    gettext_noop("SHA-256 of what is frozen"),
    gettext_noop("By which campaigns and programs name it; letters, digits, . _ -"),
    gettext_noop("An address, or a name with an address in <>"),
    gettext_noop("Where bounces go; empty: to From's address"),
    gettext_noop("Each message gets a return path of its own (VERP): name+token@domain, of the return path"),
    gettext_noop("Of SMS: up to 11 letters, digits and signs"),
    gettext_noop("Of SMS: each recipient always sees the same of these numbers"),
    gettext_noop("Of SMS: further words that ask as STOP does, in any language"),
    gettext_noop("Of SMS: further words that ask as START does, in any language"),
    gettext_noop("Of SMS: further words that ask as HELP does, in any language"),
    gettext_noop("Of SMS; empty: none is sent"),
    gettext_noop("Of campaigns and requests of its channel that name none"),
    gettext_noop("Of From's address, or above it"),
    gettext_noop("<selector>._domainkey.<domain> has the key"),
    gettext_noop("Empty: all of the vendor"),
    gettext_noop("Who may use it; empty: all sponsors, each by the vendors that it may use"),
    gettext_noop("Seconds for which a vendor may be out of reach, or ask to wait, before the next one is taken"),
    gettext_noop("The order: the first one that takes work is taken"),
    gettext_noop("Its share of new campaigns, among those that have one; 0 of all: they begin with the first"),
    gettext_noop("Nothing started it within the catch-up period."),
    gettext_noop("What had been seen of the call"),
    gettext_noop("Empty: of all sponsors"),
    gettext_noop("Empty: erased"),
    gettext_noop("Empty: everything"),
    gettext_noop("Empty: for good"),
    gettext_noop("The name of an entry point mailhub.adapters"),
    gettext_noop("The sponsor whose contract it is, and whose users govern it; empty: the installation's"),
    gettext_noop("A job with fewer messages is small; the others are cut into children (document 003)."),
    gettext_noop("Delivers to nobody: the only kind that a test key may use."),
    gettext_noop("Below so many answers the vendor counts as healthy (document 002)."),
    gettext_noop("Below this share of good answers programs hear 503; 0: never."),
    gettext_noop("Seconds after which the answers counted so far are forgotten."),
    gettext_noop("Seconds that programs are told to wait; then one of them may probe."),
    gettext_noop("Local time of the nightly dispatch (document 000)"),
    gettext_noop("ISO weekdays: 1 is Monday"),
    gettext_noop("A missed nightly run still starts this late; then it is flagged."),
    gettext_noop("Empty: the limit holds over all credentials of the vendor together."),
    gettext_noop("The hard deadline: by then the last of these calls had ended."),
    gettext_noop("When the last answer of its claims that have ended was stored."),
    gettext_noop("Under which the throttle gave these places."),
    gettext_noop("Empty: the price holds for all credentials of the vendor that have none of their own."),
    gettext_noop("The first day (UTC) on which it holds"),
    gettext_noop("ISO 4217, as EUR"),
    gettext_noop("For each unit: a segment of an SMS, a page, a message where the adapter counts messages"),
    gettext_noop("In addition for each message"),
    gettext_noop("Needed if it corrects days that are over"),
    gettext_noop("The name of the Celery task"),
    gettext_noop("Headers, properties, body and routing, as JSON"),
    gettext_noop("The publication that was tried last"),
    gettext_noop("How many may exist, one a claim"),
    gettext_noop("The only publication that may run"),
    gettext_noop("No longer waits: released, received or cancelled"),
)


def put_into_language() -> None:
    """Make Django's forms show them in the language of the page."""
    known = frozenset(HELP)
    for label in ("campaigns", "vendors", "mailhub", "waiter"):
        for model in apps.get_app_config(label).get_models():
            for field in (*model._meta.local_fields, *model._meta.local_many_to_many):
                if (text := str(field.help_text)) in known:
                    field.help_text = gettext_lazy(text)
