"""Pages of campaign owners, at /. The commands and the API can do the same."""
