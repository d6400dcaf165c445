"""Pages of campaign owners about their programs: webhooks and API keys."""
