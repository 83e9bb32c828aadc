"""Dead letters: rows that rules have dropped, where they are kept, and how they are sent again."""
