"""Makes a vector from prompts, on a model that is run here."""
