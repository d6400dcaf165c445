"""The feature of the second person: campaigns that wait for one, and the parts frozen for the approval.

- approval_rules: which campaigns need an approval, who asks for it, which actions are barred without it.
- frozen_parts: the parts of a campaign that an approval covers.
- gates: the engine's port `gates`: what may go out, by entitlements, approvals and quotas.

The decision ends jobs if it refuses, so it is in campaigns/operations/approving.py. Models: models/approvals.py. Doors:
management/ (approve_campaign), pages.py.
"""
