"""The progress bar says what is counted, and nothing when it is not asked."""

from calque.progress import bar


def test_a_bar_counts_up_to_a_total_from_where_it_was(capsys):
    with bar(10, unit="word", title="encode", show=True, initial=4) as shown:
        shown.update(6)
    assert "encode: 100%" in (said := capsys.readouterr().err)
    assert "10/10" in said


def test_a_bar_that_is_not_shown_writes_nothing(capsys):
    with bar(None, unit="pass", show=False) as shown:
        shown.update()
    assert list(bar(iter("ab"), unit=" lines", show=False)) == ["a", "b"]
    assert capsys.readouterr().err == ""
