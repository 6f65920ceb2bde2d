import pytest

from crossbench.inputs.printable import printable


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("out of memory", "out of memory"),
        ("", ""),
        ("1.5 s – 3 × ‖a‖ → 日本", "1.5 s – 3 × ‖a‖ → 日本"),
        ("first\nsecond\r\n\tthird\x0b\x85\u2028fourth ", "first second third fourth"),
        ("\x1b[31;1mred\x1b[0m and \x1b[2Kgone", "red and gone"),
        ("\x1b]0;title\x07", "?]0;title?"),
        ("a\x00b\x7fc\x9bd\u202ee\ud800f\ufeffg", "a?b?c?d?e?f?g"),
    ],
)
def test_text_becomes_one_printable_line(text, line):
    assert printable(text) == line


def test_a_long_text_is_cut():
    assert printable("x" * 500) == "x" * 500
    assert printable("x" * 501) == "x" * 499 + "…"
    assert printable("word " * 10_000_000, limit=10) == "word word…"
    assert printable(" " * 5001 + "x") == "…"
