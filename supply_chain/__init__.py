"""Generate the lock of jars and the bill of materials from the declarations."""
