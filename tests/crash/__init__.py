"""Every process is killed under load, again and again; afterwards the books must balance."""
