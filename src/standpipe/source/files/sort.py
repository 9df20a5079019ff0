"""Sort packed byte strings without making Python objects."""

from __future__ import annotations

import numpy as np

from standpipe.spec import Int64Array, UInt8Array

WORD_BYTES = 8


def sort_keys(blob: UInt8Array, starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """Sort n keys by their bytes, stably. Each pass compares eight bytes of the keys that are still equal.

    blob     (m,) uint8, with at least 8 bytes after the last key
    starts   (n,) int64: key i is ``blob[starts[i]:starts[i] + lengths[i]]``
    lengths  (n,) int64

    Returns the keys' numbers in sorted order, (n,) int64.

    No key may be another key plus NUL bytes: the bytes after a key's end count as NUL.
    """
    order = np.arange(len(starts))
    first = np.zeros(len(starts), np.int64)  # for each place in ``order``, the first place of an equal key
    tied = np.arange(len(starts))
    words = np.ndarray((len(blob) - WORD_BYTES + 1,), ">u8", blob, strides=(1,))
    longest = int(lengths.max()) if len(lengths) else 0
    for offset in range(0, longest, WORD_BYTES):
        if len(tied) == 0:
            break
        keys = order[tied]
        left = np.clip(lengths[keys] - offset, 0, WORD_BYTES)
        past_end = ((WORD_BYTES - left) * 8).astype(np.uint64)
        word = words[np.minimum(starts[keys] + offset, len(words) - 1)].astype(np.uint64)
        word = np.where(left > 0, word >> past_end << past_end, 0)

        by = np.lexsort((word, first[tied]))
        keys, word, left, group = keys[by], word[by], left[by], first[tied]
        order[tied] = keys
        differs = np.append(True, (group[1:] != group[:-1]) | (word[1:] != word[:-1]))
        first[tied] = np.maximum.accumulate(np.where(differs, tied, 0))
        alone = differs & np.append(differs[1:], True)
        tied = tied[~alone & (left > 0)]
    return order
