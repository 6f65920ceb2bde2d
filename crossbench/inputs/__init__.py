"""Check what comes from outside: rules, names, files, and the errors that say what is wrong."""
