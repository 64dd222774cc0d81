"""The files connector: its source, the ledger of files, and readers of file formats."""
