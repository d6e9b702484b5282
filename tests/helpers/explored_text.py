"""Sentences for tests of the explorer, including an ambiguous word and a right-to-left script."""

from calque.text import ParallelCorpus

ENGLISH = [
    "the old ferry leaves the harbour at seven .",
    "the cat sees a house of time .",
    "she sat on the bank of the river .",
    "the bank in town closed at five .",
    "the wind blows from the north .",
    "birds sing in the old house .",
]

GERMAN = [
    "die alte Fähre verlässt den Hafen um sieben .",
    "die Katze sieht ein Haus der Zeit .",
    "sie saß am Ufer des Flusses .",
    "die Bank in der Stadt schloss um fünf .",
    "der Wind bläst aus dem Norden .",
    "Vögel singen in dem alten Haus .",
]

HEBREW = ["שלום לכולם , הספינה יוצאת בשבע .", "החתול רואה בית ."]


def pairs_of(left: list[str], right: list[str], langs: tuple[str, str]) -> ParallelCorpus:
    return ParallelCorpus.of(
        [line.split() for line in left], [line.split() for line in right], langs
    )
