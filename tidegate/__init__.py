"""What the API and the workers agree on: settings, jobs, the ledger, tickets and the catalogue."""
