"""How much memory the C allocator holds in use, and how to give free pages back (glibc).

The caches of a native library can't be asked for their size; the heap before and after a call
tells it. One look takes about 0.1 ms.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import cast

_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


@functools.cache
def _mallinfo2() -> Callable[[], _Mallinfo2] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    function.restype = _Mallinfo2
    function.argtypes = ()
    return cast(Callable[[], _Mallinfo2], function)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        function = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = (ctypes.c_size_t,)
    return cast(Callable[[int], int], function)


def heap_in_use() -> int | None:
    """Bytes that malloc has handed out, over all arenas; None without glibc 2.33 or newer."""
    mallinfo2 = _mallinfo2()
    if mallinfo2 is None:
        return None
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


def return_free_pages() -> None:
    """Give the allocator's free pages back to the system, where malloc_trim exists."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)
