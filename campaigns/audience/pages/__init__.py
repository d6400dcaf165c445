"""Pages of campaign owners about answers, and about one recipient."""
