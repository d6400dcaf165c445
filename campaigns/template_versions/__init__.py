"""What sponsors do with the templates that they keep: versions: check, add, find, archive; comparing: differences."""
