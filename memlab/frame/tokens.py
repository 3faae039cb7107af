"""Count the tokens of a text: estimated from its characters, or exactly by a tokenizer."""

from collections.abc import Callable

from memlab.extras import import_extra

CountTokens = Callable[[str], int]

CHARS_PER_TOKEN = 4
ESTIMATE_RULE = f"estimate: characters / {CHARS_PER_TOKEN}, rounded up"


def token_counter(count_tokens: CountTokens | str) -> tuple[CountTokens, str]:
    """Return a function that counts the tokens of one text, and the rule it follows in words.

    Parameters
    ----------
    count_tokens : callable or str
        Such a function, or the name of a tokenizer that rs-bpe brings, such as ``"o200k_base"``.

    Raises
    ------
    MissingExtraError
        When a tokenizer is named and rs-bpe is not installed.
    ValueError
        When rs-bpe has no tokenizer of that name.
    """
    if callable(count_tokens):
        name = getattr(count_tokens, "__qualname__", type(count_tokens).__qualname__)
        return count_tokens, f"counted by {name}"
    openai = import_extra("rs_bpe", extra="tokens").bpe.openai
    names = [name for name in dir(openai) if name.endswith("_base")]
    if count_tokens not in names:
        raise ValueError(
            f"count_tokens must be a function or one of {', '.join(names)}, not {count_tokens!r}"
        )
    return getattr(openai, count_tokens)().count, f"exact: {count_tokens}"
