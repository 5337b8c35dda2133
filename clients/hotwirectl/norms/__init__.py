"""Tables of the residual stream's norms: measured, imported, shown."""
