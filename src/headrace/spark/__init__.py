"""Spark itself: sessions and their jars, catalogs, checkpoint folders, SQL, and the errors that it raises."""
