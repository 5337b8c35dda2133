"""What a relative dose does to a model's text: the figures and the plot of docs/dose.md."""
