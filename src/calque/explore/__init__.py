"""A local page where one clicks a word in a sentence and sees its neighbours in other languages, before and after alignment."""
