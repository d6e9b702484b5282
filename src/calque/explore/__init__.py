"""A local page that shows the neighbours of a clicked word in other languages, before and after alignment."""
