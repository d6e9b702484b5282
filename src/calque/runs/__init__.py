"""The functions behind the commands, from files to a folder."""
