"""Local web page that shows a word's nearest neighbours in other languages, before and after
alignment.
"""
