"""Local web page that shows the nearest words of a word in other languages, before and after alignment."""
