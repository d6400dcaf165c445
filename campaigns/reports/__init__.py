"""What came of a campaign, for whoever sent it: how it stands, why messages failed, and each recipient."""
