#!/usr/bin/env python3
"""Writes types.<TYPE>.blocks (random valid blocks) and types.<TYPE>.floats (the same blocks as the
public gguf Python package unpacks them, float32) beside itself.  Needs: pip install gguf numpy.

Scales take every size a file may hold: zeros of both signs, subnormals, the largest half, ordinary
ones; never an infinity or NaN, which no quantizer writes."""

import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00]
# Type: bytes of a block, blocks, and where the half-precision scales lie in it.
TYPES = {
    "F16": (2, 512, [0]),
    "BF16": (2, 512, []),
    "F32": (4, 256, []),
    "Q8_0": (34, 24, [0]),
    "Q4_0": (18, 24, [0]),
    "Q4_K": (144, 12, [0, 2]),
    "Q5_K": (176, 12, [0, 2]),
    "Q6_K": (210, 12, [208]),
}


def halves(random, n):
    """Half-precision bit patterns: the extreme ones first, then ordinary scales."""
    ordinary = random.uniform(-0.1, 0.1, n).astype(np.float16).view(np.uint16)
    extreme = random.permutation(np.array(SCALES, dtype=np.uint16))[:n]
    ordinary[: len(extreme)] = extreme
    return ordinary


def make(name, random):
    size, count, scales = TYPES[name]
    raw = random.integers(0, 256, (count, size), dtype=np.uint8)
    if name in ("BF16", "F32"):
        raw[:, -1] = random.integers(0, 0x7F, count) | random.integers(0, 2, count) << 7
    for at in scales:
        raw[:, at : at + 2] = halves(random, count).view(np.uint8).reshape(count, 2)
    if name == "F16":
        raw = halves(random, count).view(np.uint8).reshape(count, 2)
        spread = random.integers(0, 0x7C00, count - 16, dtype=np.uint16)
        spread |= random.integers(0, 2, count - 16, dtype=np.uint16) << 15
        raw[16:] = spread.view(np.uint8).reshape(-1, 2)
    return raw


def main():
    for i, name in enumerate(TYPES):
        raw = make(name, np.random.default_rng(i)).reshape(-1)
        kind = gguf.GGMLQuantizationType[name]
        whole = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
        floats = gguf.quants.dequantize(whole, kind).astype("<f4")
        assert not np.isnan(floats).any()
        (HERE / f"types.{name}.blocks").write_bytes(raw.tobytes())
        (HERE / f"types.{name}.floats").write_bytes(floats.tobytes())


if __name__ == "__main__":
    main()
