"""Pages for recipients, who lack an account, to unsubscribe and subscribe again."""
