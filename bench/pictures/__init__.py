"""Pictures of the documents, each drawn by one command."""
