"""Files that say what the project consists of, made from what it declares."""
