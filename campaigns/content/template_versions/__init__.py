"""Templates that sponsors keep. versions: check, add, find, archive. comparing: differences between versions."""
