"""Quality: rules that the rows of an epoch are judged by."""
