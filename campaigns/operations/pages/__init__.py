"""Pages of campaign owners: the first page, decisions about a campaign."""
