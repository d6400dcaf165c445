"""The page of a campaign, its report, the chart of days."""
