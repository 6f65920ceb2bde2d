"""Holds how a comparison is drawn where it is printed: the package tells it, since what draws is
above this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .comparison import Comparison

    Draw = Callable[[Comparison], str]

as_text: Draw
as_html: Draw
