"""The casters that a new vendor starts with."""

import pytest

from campaigns.engine.casting.mailcaster import ORDER, idle_casters
from tests import factories as make
from vendors.configuration import create_default_casters
from vendors.models import Mailcaster


@pytest.mark.django_db
def test_a_new_vendor_can_send_small_and_large_jobs_at_once() -> None:
    vendor = make.vendor()
    made = create_default_casters(vendor)
    make.campaign_with_job(1, of=make.credential(vendor), status="DISPATCHED")
    assert idle_casters(vendor.pk) == [one.pk for one in made]
    kinds = [one.kind for one in made]
    assert kinds.count(Mailcaster.Kind.SMALL_ONLY) == 1  # a long broadcast never holds up a single letter
    assert kinds.count(Mailcaster.Kind.LARGE_PRIORITY) == 2
    assert set(kinds) <= set(ORDER)


@pytest.mark.django_db
def test_large_casters_cut_by_the_defaults_of_document_003() -> None:
    large = [one for one in create_default_casters(make.vendor()) if one.kind == Mailcaster.Kind.LARGE_PRIORITY]
    assert {(one.min_size, one.max_size, one.percentage) for one in large} == {(2000, 10_000, 3)}
