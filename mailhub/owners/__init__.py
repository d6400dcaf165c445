"""Pages of campaign owners, at /: what they do, the commands and the API can do, too."""
