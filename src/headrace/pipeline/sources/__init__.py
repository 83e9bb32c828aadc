"""Sources: what a materialization reads, as frames of documents, and how far behind it is."""
