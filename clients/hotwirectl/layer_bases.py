"""What row or entry i of a foreign file is; the number of rows alone does not say it."""

#: The output of block i.
OUTPUT = "output"

#: Entry i of transformers' hidden states, the first of which is the embedding.
HIDDEN_STATES = "hidden-states"

BASES = (OUTPUT, HIDDEN_STATES)
