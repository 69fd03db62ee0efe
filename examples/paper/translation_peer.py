"""Train a Marian model of `transformers` like the models of `examples/paper/translate.py`.

It has the same options, text, tokens, batches, loss, learning rate and mean of checkpoints, and
writes the same files. Only the model and the optimizer come from `transformers` and PyTorch. Marian
has sinusoids at the input and normalizes after each sublayer.

At the end, our beam search translates with Marian's weights, because the search of `transformers`
has another length penalty and another end. The folder `transformers` has the translations and BLEU
of the search of `transformers`. `translation.py` runs this script for the row "marian".
An interrupted run continues after the last epoch.
"""

import csv
import os
import sys

# Keras makes the batches of text, on the backend of the model.
os.environ["KERAS_BACKEND"] = "torch"
import numpy as np
import torch
import tqdm

from examples.paper import translate
from examples.paper.marian import make_marian, read_marian
from examples.paper.translate_options import parse_arguments
from keras_diet import models, samplers, training


def main(argv=None):
    arguments = parse_arguments(argv)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    train_pairs, validation_pairs, test_pairs = translate.load_text(arguments)
    tokenizer = translate.load_tokenizer(arguments, train_pairs)
    # Its preprocessor makes the arrays of the batches.
    translator = translate.build_model(arguments, tokenizer)
    torch.manual_seed(arguments.seed)
    marian = make_marian(arguments, tokenizer)
    print(f"{marian.num_parameters():,} parameters, {len(train_pairs[0]):,} pairs")
    batches, validation_batches = (
        translate.token_batches(translator, pairs, arguments)
        for pairs in (train_pairs, validation_pairs)
    )
    train(marian, batches, validation_batches, arguments)
    load_mean(marian, sorted(arguments.output_dir.glob("epoch_*.pt")))
    search_of_transformers = MarianTranslator(marian.eval(), translator.preprocessor, arguments)
    folder = arguments.output_dir / "transformers"
    folder.mkdir(exist_ok=True)
    translate.report_bleu(search_of_transformers, *test_pairs, folder)
    # The benchmark takes this file for the end of the run.
    our_search = with_our_search(marian, translator.preprocessor, arguments)
    translate.report_bleu(our_search, *test_pairs, arguments.output_dir)


def train(marian, batches, validation_batches, arguments):
    folder = arguments.output_dir
    optimizer = torch.optim.Adam(marian.parameters(), lr=1.0, betas=(0.9, 0.997), eps=1e-9)
    scale = arguments.learning_rate * (arguments.hidden_dim * arguments.warmup_steps) ** 0.5
    rate = training.InverseSquareRootDecay(arguments.hidden_dim, arguments.warmup_steps, scale)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(rate(step)))
    history = resume(marian, optimizer, schedule, folder)
    for epoch in range(len(history), arguments.epochs):
        batches.epoch = epoch
        marian.train()
        losses = []
        bar = tqdm.trange(len(batches), desc=f"epoch {epoch + 1}", disable=not sys.stderr.isatty())
        for i in bar:
            loss, _ = batch_loss(marian, *batches[i], arguments.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        row = {
            "epoch": epoch,
            "loss": float(np.mean(losses)),
            "val_loss": evaluate(marian, validation_batches, arguments),
        }
        history.append(row)
        print(row, flush=True)
        save(marian, optimizer, schedule, history, arguments)


def batch_loss(marian, inputs, labels, weights, label_smoothing):
    """Return the mean loss of the labels, and their number."""
    tensors = as_tensors(inputs)
    logits = marian(
        input_ids=tensors["encoder_token_ids"],
        attention_mask=tensors["encoder_padding_mask"],
        decoder_input_ids=tensors["decoder_token_ids"],
        decoder_attention_mask=tensors["decoder_padding_mask"],
    ).logits
    labels = torch.as_tensor(np.asarray(labels)).long()
    labels = labels.masked_fill(torch.as_tensor(np.asarray(weights)) == 0, -100)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), label_smoothing=label_smoothing
    )
    return loss, int((labels >= 0).sum())


def as_tensors(inputs):
    return {name: torch.as_tensor(np.asarray(value)).long() for name, value in inputs.items()}


def evaluate(marian, batches, arguments):
    """Return the mean loss of all labels."""
    marian.eval()
    with torch.inference_mode():
        pairs = [
            batch_loss(marian, *batches[i], arguments.label_smoothing) for i in range(len(batches))
        ]
    losses, counts = zip(*pairs, strict=True)
    return float(np.average([loss.item() for loss in losses], weights=counts))


# === Checkpoints ===


def save(marian, optimizer, schedule, history, arguments):
    """Write a checkpoint, and keep the last ones."""
    folder, epoch = arguments.output_dir, history[-1]["epoch"]
    state = {
        "model": marian.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "history": history,
        "generator": torch.get_rng_state(),
    }
    torch.save(state, folder / "unfinished.pt")
    os.replace(folder / "unfinished.pt", folder / f"epoch_{epoch:04d}.pt")
    for old in sorted(folder.glob("epoch_*.pt"))[: -arguments.averaged_epochs]:
        old.unlink()
    with open(folder / "history.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(history[0]))
        writer.writeheader()
        writer.writerows(history)


def resume(marian, optimizer, schedule, folder):
    """Load the last checkpoint, and return its history."""
    files = sorted(folder.glob("epoch_*.pt"))
    if not files:
        return []
    state = torch.load(files[-1], weights_only=False)
    marian.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    torch.set_rng_state(state["generator"])
    return state["history"]


def load_mean(marian, files):
    """Load the mean of the weights in several checkpoints."""
    states = [torch.load(file, weights_only=False)["model"] for file in files]
    mean = {
        name: torch.stack([state[name].float() for state in states]).mean(0) for name in states[0]
    }
    marian.load_state_dict(mean)


def with_our_search(marian, preprocessor, arguments):
    """Return our translator with Marian's weights."""
    translator = models.DietTransformerSeq2SeqLM(read_marian(marian), preprocessor)
    sampler = samplers.BeamSearchSampler(arguments.num_beams, arguments.length_penalty)
    translator.compile(sampler=sampler)
    return translator


class MarianTranslator:
    """Marian with the search of `transformers`, and the `generate` that `report_bleu` calls."""

    def __init__(self, marian, preprocessor, arguments):
        self.marian, self.preprocessor, self.arguments = marian, preprocessor, arguments

    def generate(self, sources, batch_size, verbose=0):
        translations = []
        starts = range(0, len(sources), batch_size)
        for start in tqdm.tqdm(starts, disable=not verbose or not sys.stderr.isatty()):
            batch = sources[start : start + batch_size]
            inputs = as_tensors(self.preprocessor.generate_preprocess(batch))
            with torch.inference_mode():
                tokens = self.marian.generate(
                    inputs["encoder_token_ids"],
                    attention_mask=inputs["encoder_padding_mask"],
                    num_beams=self.arguments.num_beams,
                    length_penalty=self.arguments.length_penalty,
                    max_new_tokens=inputs["decoder_token_ids"].shape[1] - 1,
                    do_sample=False,
                )
            outputs = {"decoder_token_ids": tokens, "decoder_padding_mask": torch.ones_like(tokens)}
            translations += self.preprocessor.generate_postprocess(outputs)
        return translations


if __name__ == "__main__":
    main()
