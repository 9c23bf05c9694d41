"""Decayed counts of one partition, in float64 on the device.

Every horizon is one contiguous row of (H, V), to which the tokens of a batch are scattered; a
(V, H) layout is some 40 times slower. What concerns whole records (weights, totals, landmarks)
stays on the host. Shape legend: R records, N tokens, P pairs of a record and an id in it,
H horizons, V vocabulary, U rows that changed, K some ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from streamfreq.codec import DecayedState, StateChanges
from streamfreq.codec.state import check_shapes
from streamfreq.counting.decay import (
    MAX_EXPONENT,
    MAX_TIME_MS,
    half_life_ns,
    landmark_for,
    record_weights,
)
from streamfreq.errors import CheckpointRefused, StreamfreqError
from streamfreq.records import FloatArray, Int32Array, Int64Array, TokenBatch

_EXACT_INTEGERS = 2**53
"""Up to here float64 counts one by one."""


@dataclass(frozen=True, slots=True)
class _Occurrences:
    """What a batch adds, as P pairs of a record and an id, the id `repeats_P` times in the record.

    `repeats_P` is None where an id stands there as often as it occurs: pairs are occurrences.
    """

    ids_P: Int64Array
    records_P: Int64Array
    repeats_P: FloatArray | None


class Counters:
    """Token counts, document counts and totals, each decayed with every half-life.

    The result depends only on which records were counted, not on their order, their batches,
    restarts by `state`/`from_state`, or how they are spread over counters that are merged:
    to 1e-9 relative, and exactly for `inf`, where a count is an integer up to 2^53.

    >>> counters = Counters((60.0, float("inf")), vocab_size=8)
    >>> batch = TokenBatch(np.array([5, 5, 7], np.int32), np.array([2, 1]))
    >>> counters.update(batch, np.array([0, 60_000]))
    >>> counters.state().counts_HV[:, [5, 7]].tolist()
    [[1.0, 1.0], [2.0, 1.0]]

    One thread at a time: nothing here is locked.
    """

    def __init__(
        self,
        half_lives_seconds: tuple[float, ...],
        vocab_size: int,
        *,
        documents: bool = True,
        device: str = "cpu",
        ids_per_token: int = 1,
    ) -> None:
        state = DecayedState.zeros(half_lives_seconds, vocab_size, documents=documents)
        self._start(state, torch.device(device), ids_per_token)

    @classmethod
    def from_state(
        cls, state: DecayedState, *, device: str = "cpu", ids_per_token: int = 1
    ) -> Counters:
        """Counters that go on from `state`, which is copied.

        Raises CheckpointRefused when the shapes in `state` do not fit each other.
        """
        _require_consistent(state)
        counters = cls.__new__(cls)
        counters._start(state, torch.device(device), ids_per_token)
        return counters

    def _start(self, state: DecayedState, device: torch.device, ids_per_token: int) -> None:
        self._half_lives_seconds = state.half_lives_seconds
        self._half_lives_H = [half_life_ns(seconds) for seconds in state.half_lives_seconds]
        self._landmarks_H = [int(landmark) for landmark in state.landmarks_H]
        self._counts_HV = _to_device(state.counts_HV.copy(), device)
        self._documents_HV = (
            None if state.documents_HV is None else _to_device(state.documents_HV.copy(), device)
        )
        self._tokens_H = state.tokens_H.copy()
        self._records_H = state.records_H.copy()
        self._watermark_ms = state.watermark_ms
        self._device = device
        self._ids_per_token = ids_per_token
        self._changed_V = torch.zeros(state.vocab_size, dtype=torch.bool, device=device)
        self._rescaled = False

    @property
    def watermark_ms(self) -> int:
        """The latest event time counted, in ms; -1: none yet."""
        return self._watermark_ms

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._counts_HV.shape[1]

    def update(self, tokens: TokenBatch, event_times_ms_R: Int64Array) -> None:
        """Count R records with their tokens, each at its own event time; all or nothing.

        A record without tokens counts as a record. Raises StreamfreqError, before anything is
        changed, when an id lies outside [0, V) or the plain counts would leave the exact
        integers; ValueError when the batch contradicts itself or a time is not in
        [0, MAX_TIME_MS].
        """
        self._require_countable(tokens, event_times_ms_R)
        if not len(tokens):
            return
        newest_ms = max(int(event_times_ms_R.max()), self._watermark_ms)
        occurrences = self._occurrences(tokens)
        self._move_landmarks(newest_ms)
        self._watermark_ms = newest_ms
        self._add(occurrences, tokens.lengths_R, event_times_ms_R)

    def state(self) -> DecayedState:
        """A copy of everything, on the host."""
        return DecayedState(
            self._half_lives_seconds,
            np.array(self._landmarks_H, np.int64),
            _to_host(self._counts_HV),
            None if self._documents_HV is None else _to_host(self._documents_HV),
            self._tokens_H.copy(),
            self._records_H.copy(),
            self._watermark_ms,
        )

    @property
    def changed_rows(self) -> int:
        """How many rows changed since `take_changes`."""
        return int(torch.count_nonzero(self._changed_V))

    def take_changes(self, *, whole: bool = False) -> StateChanges:
        """The rows that changed since the last call, on the host; all of them when `whole`.

        They are whole by themselves when a landmark has moved, for then every row changed. The
        cost is that of the rows taken, and of one look at V flags.
        """
        if whole or self._rescaled:
            changes = StateChanges.all_of(self.state())
        else:
            rows_U = torch.nonzero(self._changed_V).squeeze(1)
            documents_HV = self._documents_HV
            changes = StateChanges(
                self._half_lives_seconds,
                self.vocab_size,
                False,
                np.array(self._landmarks_H, np.int64),
                rows_U.to("cpu", torch.int32).numpy(),
                _to_host(self._counts_HV[:, rows_U]),
                None if documents_HV is None else _to_host(documents_HV[:, rows_U]),
                self._tokens_H.copy(),
                self._records_H.copy(),
                self._watermark_ms,
            )
        self._changed_V.zero_()
        self._rescaled = False
        return changes

    def put_back(self, changes: StateChanges) -> None:
        """These changes, which `take_changes` gave, are still to be taken: they were not kept."""
        self._rescaled |= changes.whole
        self._changed_V[torch.from_numpy(changes.rows_U).to(self._device, torch.int64)] = True

    def counts_of(self, ids_K: Int32Array) -> FloatArray:
        """The stored values of some ids, shape (H, K), each row relative to its own landmark."""
        rows_K = torch.from_numpy(ids_K).to(self._device, torch.int64)
        return _to_host(self._counts_HV[:, rows_K])

    def _require_countable(self, tokens: TokenBatch, event_times_ms_R: Int64Array) -> None:
        ids_N, lengths_R = tokens.ids_N, tokens.lengths_R
        if len(event_times_ms_R) != len(lengths_R):
            raise ValueError(f"{len(lengths_R)} records but {len(event_times_ms_R)} event times")
        if (lengths_R < 0).any():
            raise ValueError("a record has a negative number of tokens")
        if self._ids_per_token > 1 and (lengths_R % self._ids_per_token).any():
            raise ValueError(f"a record's ids are no multiple of {self._ids_per_token} per token")
        if len(lengths_R) and not (
            event_times_ms_R.min() >= 0 and event_times_ms_R.max() <= MAX_TIME_MS
        ):
            raise ValueError(f"event times must lie in [0, {MAX_TIME_MS}] ms; resolve them first")
        if len(ids_N):
            lowest, highest = int(ids_N.min()), int(ids_N.max())
            if lowest < 0 or highest >= self.vocab_size:
                raise StreamfreqError(
                    f"token id {lowest if lowest < 0 else highest} is not in "
                    f"[0, {self.vocab_size}): this tokenizer does not fit these counters, "
                    "which were made for another vocabulary size; nothing was counted"
                )
        for half_life, counted in zip(self._half_lives_H, self._tokens_H, strict=True):
            if (
                half_life is None
                and int(counted) * self._ids_per_token + len(ids_N) > _EXACT_INTEGERS
            ):
                raise StreamfreqError(
                    f"{counted:.0f} tokens are counted with half-life inf; beyond 2^53 plain "
                    "counts are no longer exact: start a new job"
                )

    def _move_landmarks(self, newest_ms: int) -> None:
        """Bring each landmark that the newest record has left too far behind up to it.

        Exact: by whole half-lives, so the row is multiplied by a power of two.
        """
        for h, half_life in enumerate(self._half_lives_H):
            target = landmark_for(newest_ms, half_life)
            shift = target - self._landmarks_H[h]
            if self._watermark_ms >= 0 and shift <= MAX_EXPONENT:
                continue
            self._landmarks_H[h] = target
            self._rescaled = True
            self._tokens_H[h] = np.ldexp(self._tokens_H[h], -min(shift, 3_000))
            self._records_H[h] = np.ldexp(self._records_H[h], -min(shift, 3_000))
            for rows_HV in (self._counts_HV, self._documents_HV):
                if rows_HV is not None:
                    _scale_down(rows_HV[h], shift)

    def _occurrences(self, tokens: TokenBatch) -> _Occurrences:
        """The ids to scatter.

        With document counts the ids are sorted within each record (by one sort of
        record * 2^bits + id, in 32 bits when that fits), so equal ids become neighbours and
        every horizon has to touch each pair of a record and an id only once.
        """
        R, N = len(tokens), len(tokens.ids_N)
        if self._documents_HV is None:
            records_N = np.repeat(np.arange(R), tokens.lengths_R)
            return _Occurrences(tokens.ids_N.astype(np.int64), records_N, None)
        bits = (self.vocab_size - 1).bit_length()
        dtype = np.dtype(np.uint32 if R << bits <= 1 << 32 else np.uint64)
        keys_N = np.repeat(np.arange(R, dtype=dtype) << dtype.type(bits), tokens.lengths_R)
        keys_N |= tokens.ids_N.view(np.uint32)
        keys_N.sort()
        begins_N = np.ones(N, np.bool_)
        np.not_equal(keys_N[1:], keys_N[:-1], out=begins_N[1:])
        firsts_P = np.flatnonzero(begins_N)
        keys_P = keys_N[firsts_P]
        return _Occurrences(
            (keys_P & dtype.type((1 << bits) - 1)).astype(np.int64),
            (keys_P >> dtype.type(bits)).astype(np.int64),
            np.diff(firsts_P, append=N).astype(np.float64),
        )

    def _add(
        self, occurrences: _Occurrences, lengths_R: Int64Array, event_times_ms_R: Int64Array
    ) -> None:
        ids_P = _to_device(occurrences.ids_P, self._device)
        records_P = _to_device(occurrences.records_P, self._device)
        repeats = occurrences.repeats_P
        repeats_P = None if repeats is None else _to_device(repeats, self._device)
        tokens_R = (
            lengths_R // self._ids_per_token if self._ids_per_token > 1 else lengths_R
        ) + 0.0
        self._changed_V.index_fill_(0, ids_P, True)
        for h, half_life in enumerate(self._half_lives_H):
            weights_R = record_weights(event_times_ms_R, half_life, self._landmarks_H[h])
            self._records_H[h] += weights_R.sum()
            self._tokens_H[h] += weights_R @ tokens_R
            weights_P = _to_device(weights_R, self._device).index_select(0, records_P)
            if self._documents_HV is not None and repeats_P is not None:
                self._documents_HV[h].scatter_add_(0, ids_P, weights_P)
                weights_P.mul_(repeats_P)
            self._counts_HV[h].scatter_add_(0, ids_P, weights_P)


def _scale_down(row_V: torch.Tensor, shift: int) -> None:
    """Multiply by 2^-shift in place, in steps, since float64 has no factor below 2^-1074."""
    if shift > 2_200:
        row_V.zero_()
        return
    while shift > 0:
        step = min(shift, 512)
        row_V.mul_(2.0**-step)
        shift -= step


def _to_device(array: FloatArray | Int64Array, device: torch.device) -> torch.Tensor:
    """The array as a tensor: the same memory on the CPU, a copy that nobody waits for on CUDA."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def _to_host(tensor: torch.Tensor) -> FloatArray:
    host: FloatArray = tensor.to("cpu", copy=True).numpy()
    return host


def _require_consistent(state: DecayedState) -> None:
    H, V = len(state.half_lives_seconds), state.vocab_size
    try:
        check_shapes(
            {
                "landmarks": (state.landmarks_H, (H,)),
                "counts": (state.counts_HV, (H, V)),
                "documents": (state.documents_HV, (H, V)),
                "tokens": (state.tokens_H, (H,)),
                "records": (state.records_H, (H,)),
            }
        )
    except ValueError as error:
        raise CheckpointRefused(
            f"can't go on counting from this state ({error}); count again from the source"
        ) from None
