"""How far each message got, and the rows that say so."""
