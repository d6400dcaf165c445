"""The API's endpoints about vendors, sender identities and topics."""
