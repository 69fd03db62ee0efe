"""Time of beam search: keras_diet, `transformers` and CTranslate2, side by side.

Each translates the same number of sources into targets of `--length` tokens: no end token stops the
search. The models have the same sizes and random weights. `transformers` runs a Marian model on
PyTorch, and CTranslate2 runs in float32. The calls alternate. CTranslate2 runs in
another process, because its threads and those of PyTorch slow each other down in the same one. The
results are printed, and written to `--output` as JSON and as a page beside it.

    KERAS_BACKEND=jax python -m benchmarks.decoding --output runs/decoding_jax.json
"""

import concurrent.futures
import functools
import itertools
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, results
from keras_diet import models, samplers

VOCABULARY_SIZE = 4000
SIZES = {"num_layers": 3, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 1024}
OTHERS = ("transformers", "ctranslate2")


def make_tokenizer() -> models.DietTransformerTokenizer:
    """Return a tokenizer of random words, because CTranslate2 needs the names of the tokens."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, size=rng.integers(3, 9))) for _ in range(8000)]
    return models.DietTransformerTokenizer.from_texts(words, VOCABULARY_SIZE)


def make_translator(tokenizer: Any, length: int) -> models.DietTransformerSeq2SeqLM:
    """Return our model, with Vaswani's positions, which all three libraries have."""
    backbone = models.DietTransformerBackbone(
        VOCABULARY_SIZE, **SIZES, max_sequence_length=4 * length, position_encoding="sinusoidal"
    )
    preprocessor = models.DietTransformerSeq2SeqLMPreprocessor(tokenizer, 4 * length, 4 * length)
    return models.DietTransformerSeq2SeqLM(backbone, preprocessor)


def with_keras_diet(
    translator: Any, sources: np.ndarray, length: int, beams: int
) -> Callable[[], Any]:
    # Without a preprocessor it takes token ids.
    model = models.DietTransformerSeq2SeqLM(translator.backbone)
    model.compile(sampler=samplers.BeamSearchSampler(beams))
    batch_size = len(sources)
    prompt = np.zeros((batch_size, length + 1), "int32")
    prompt[:, 0] = translator.preprocessor.tokenizer.start_token_id
    inputs = {
        "encoder_token_ids": sources,
        "encoder_padding_mask": np.ones_like(sources),
        "decoder_token_ids": prompt,
        "decoder_padding_mask": np.eye(1, length + 1, dtype="int32").repeat(batch_size, axis=0),
    }

    def translate():
        return model.generate(inputs, stop_token_ids=None)

    return translate


def with_transformers(
    marian: Any, sources: np.ndarray, length: int, beams: int
) -> Callable[[], Any]:
    import torch

    token_ids = torch.tensor(sources)

    def translate():
        with torch.inference_mode():
            return marian.generate(
                token_ids,
                attention_mask=torch.ones_like(token_ids),
                num_beams=beams,
                do_sample=False,
                min_new_tokens=length,
                max_new_tokens=length,
            )

    return translate


def translate_with_ctranslate2(sources: list[list[str]], length: int, beams: int) -> None:
    engine.translate_batch(
        sources, beam_size=beams, min_decoding_length=length, max_decoding_length=length
    )


def load_ctranslate2(folder: Path, cores: int) -> None:
    """Load the model in a process for CTranslate2 alone."""
    global engine
    # With MKL and two threads, one text takes ten times as long on some machines.
    os.environ["CT2_USE_MKL"] = "0"
    import ctranslate2

    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=cores)


def make_marian(tokenizer: Any, length: int) -> Any:
    import transformers

    config = transformers.MarianConfig(
        vocab_size=VOCABULARY_SIZE,
        d_model=SIZES["hidden_dim"],
        encoder_layers=SIZES["num_layers"],
        decoder_layers=SIZES["num_layers"],
        encoder_attention_heads=SIZES["num_heads"],
        decoder_attention_heads=SIZES["num_heads"],
        encoder_ffn_dim=SIZES["intermediate_dim"],
        decoder_ffn_dim=SIZES["intermediate_dim"],
        activation_function="relu",
        max_position_embeddings=4 * length,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.end_token_id,
        forced_eos_token_id=None,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    return transformers.MarianMTModel(config).eval()


def make_ctranslate2(translator: Any, folder: Path) -> concurrent.futures.Executor:
    """Return a process that has loaded the translator."""
    translator.export_to_ctranslate2(folder)
    arguments = (folder, measure.machine("cpu")["cores"])
    context = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(1, context, load_ctranslate2, arguments)


def make_calls(
    engines: tuple[Any, ...], batch_size: int, beams: int, length: int
) -> dict[str, Callable[[], Any]]:
    """Return a function for each library that translates a batch."""
    translator, marian, process = engines
    tokenizer = translator.preprocessor.tokenizer
    # No special tokens.
    sources = np.random.default_rng(0).integers(10, VOCABULARY_SIZE, (batch_size, length))
    pieces = [[tokenizer.id_to_token(int(token)) for token in row] for row in sources]
    arguments = (translate_with_ctranslate2, pieces, length, beams)
    return {
        "keras_diet": with_keras_diet(translator, sources, length, beams),
        "transformers": with_transformers(marian, sources, length, beams),
        "ctranslate2": lambda: process.submit(*arguments).result(),
    }


def measure_cell(
    engines: tuple[Any, ...], batch_size: int, beams: int, length: int, rounds: int
) -> dict[str, Any]:
    """Return the seconds of each library, and the ratios of keras_diet to the others."""
    calls = make_calls(engines, batch_size, beams, length)
    for call in calls.values():
        # The first call compiles.
        call()
    times = measure.time_in_turn(calls, rounds)
    cell: dict[str, Any] = {"seconds": times}
    for other in OTHERS:
        ratio, quartiles = measure.ratio(times["keras_diet"], times[other])
        cell[other] = {"ratio": ratio, "quartiles": quartiles}
    return cell


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("Beam search", "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    rows = [
        [
            name,
            *(f"{1000 * np.median(seconds):.0f}" for seconds in cell["seconds"].values()),
            *(f"{cell[other]['ratio']:.2f}" for other in OTHERS),
        ]
        for name, cell in run["cells"].items()
    ]
    columns = (
        *("batch size, beams", "keras_diet, ms", "transformers, ms", "CTranslate2, ms"),
        *("keras_diet / transformers", "keras_diet / CTranslate2"),
    )
    return results.markdown_table(columns, rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--beams", nargs="+", type=int, default=[4, 10])
    parser.add_argument("--length", type=int, default=32, help="tokens of sources and targets")
    parser.add_argument("--rounds", type=int, default=7, help="calls of each library")
    options = results.parse(parser, argv)
    run = results.start(__spec__.name, options, ("length", "rounds"), **SIZES)
    tokenizer = make_tokenizer()
    translator = make_translator(tokenizer, options.length)
    with (
        tempfile.TemporaryDirectory() as folder,
        make_ctranslate2(translator, Path(folder) / "model") as process,
    ):
        engines = (translator, make_marian(tokenizer, options.length), process)
        cells = {
            f"{batch_size}, {beams}": functools.partial(
                measure_cell, engines, batch_size, beams, options.length, options.rounds
            )
            for batch_size, beams in itertools.product(options.batch_sizes, options.beams)
        }
        results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
