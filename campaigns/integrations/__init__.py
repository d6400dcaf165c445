"""The feature of programs that follow along: events posted to them, and results that they fetch.

- webhooks: events of a campaign or message, posted until they are taken.
- results: outcomes of the sessions of the HTTP API, through Redis.
- reactions: the engine's port `events`: what follows from an event in all features.

Models: models/api_clients.py, api_keys.py. Doors: api/, management/ (listening is its receiver for tests), pages/. Keys
are read in campaigns/doors/front/keys.py.
"""
