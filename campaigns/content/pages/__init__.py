"""Pages of campaign owners about templates."""
