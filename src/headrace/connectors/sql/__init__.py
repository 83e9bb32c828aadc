"""Code that SQL endpoints share: tables and their changes, field constraints, and the fence."""
