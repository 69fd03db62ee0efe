"""The models of `question_answering.py`, which start alike, and their training steps."""

import argparse
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_diet import models, training
from keras_diet.models.diet_bert.question_windows import mask_answer_logits

EPSILON = 1e-7
# Parts of the names of weights without decay, in Keras and in Hugging Face's BERT.
WITHOUT_DECAY = {"keras": ["bias", "gamma", "beta"], "hugging_face": ["bias", "LayerNorm"]}
# A step takes inputs and labels, and returns the loss.
Step = Callable[[dict, dict], float]


def call_bert(bert: Any, tensors: dict, **labels: Any) -> Any:
    return bert(
        input_ids=tensors["token_ids"],
        token_type_ids=tensors["segment_ids"],
        attention_mask=tensors["padding_mask"],
        **labels,
    )


def loss_of_hugging_face(bert: Any, tensors: dict) -> Any:
    """Return the loss over all positions, as Hugging Face's model computes it."""
    labels = {"start_positions": tensors["start"], "end_positions": tensors["end"]}
    return call_bert(bert, tensors, **labels).loss


def context_loss(bert: Any, tensors: dict) -> Any:
    """Return the loss of our model: over `[CLS]` and the context only."""
    import torch

    outputs = call_bert(bert, tensors)
    masks = [tensors[name].cpu().numpy() for name in ("segment_ids", "padding_mask")]
    excluded = mask_answer_logits(np.zeros(masks[0].shape, "float32"), *masks)
    excluded = torch.as_tensor(keras.ops.convert_to_numpy(excluded), device=bert.device)
    loss = torch.nn.functional.cross_entropy
    return (
        loss(outputs.start_logits + excluded, tensors["start"])
        + loss(outputs.end_logits + excluded, tensors["end"])
    ) / 2


LOSSES_OF_HUGGING_FACE = {
    "hugging_face": loss_of_hugging_face,
    "hugging_face_context": context_loss,
}
ROWS = (*LOSSES_OF_HUGGING_FACE, "input", "diet_abs", "diet_rel")


def make_bert(seed: int, options: argparse.Namespace) -> Any:
    """Return Hugging Face's model with a new head, which is the start of all rows."""
    import torch
    import transformers

    # Otherwise it reports for each row that the head is new.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(seed)
    config = transformers.BertConfig.from_pretrained(options.bert)
    # Our models have one rate.
    config.attention_probs_dropout_prob = config.hidden_dropout_prob
    return transformers.BertForQuestionAnswering.from_pretrained(options.bert, config=config)


def make_schedule(num_steps: int, options: argparse.Namespace) -> training.WarmupLinearDecay:
    return training.WarmupLinearDecay(
        options.learning_rate, num_steps, warmup_proportion=options.warmup_proportion
    )


def make_step(
    row: str, seed: int, preprocessor: Any, num_steps: int, options: argparse.Namespace
) -> tuple[Step, Callable[[], Any]]:
    """Return a training step, which returns its loss, and a function for the trained answerer."""
    keras.utils.set_random_seed(seed)
    bert = make_bert(seed, options)
    if row in LOSSES_OF_HUGGING_FACE:
        from_bert = functools.partial(models.DietBertQuestionAnswerer.from_bert, bert, "input")
        step = make_hugging_face_step(bert, LOSSES_OF_HUGGING_FACE[row], num_steps, options)
        return step, lambda: from_bert(preprocessor=preprocessor)
    sharing = "layer-wise" if row == "diet_abs" else None
    answerer = models.DietBertQuestionAnswerer.from_bert(bert, row, preprocessor, sharing=sharing)
    # The batches are windows already.
    answerer.preprocessor = None

    def with_preprocessor():
        answerer.preprocessor = preprocessor
        return answerer

    return make_keras_step(answerer, num_steps, options), with_preprocessor


def make_keras_step(answerer: Any, num_steps: int, options: argparse.Namespace) -> Step:
    optimizer = keras.optimizers.AdamW(
        make_schedule(num_steps, options), weight_decay=options.weight_decay, epsilon=EPSILON
    )
    optimizer.exclude_from_weight_decay(var_names=WITHOUT_DECAY["keras"])
    jit_compile = keras.config.backend() != "torch"
    answerer.compile(optimizer=optimizer, metrics=None, jit_compile=jit_compile)

    def step(inputs, labels):
        return float(answerer.train_on_batch(inputs, labels, return_dict=True)["loss"])

    return step


def make_hugging_face_step(
    bert: Any, loss_of: Callable[[Any, dict], Any], num_steps: int, options: argparse.Namespace
) -> Step:
    import torch

    bert.to("cuda" if torch.cuda.is_available() else "cpu").train()
    groups = {True: [], False: []}
    for name, parameter in bert.named_parameters():
        groups[not any(part in name for part in WITHOUT_DECAY["hugging_face"])].append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": groups[True], "weight_decay": options.weight_decay},
            {"params": groups[False], "weight_decay": 0.0},
        ],
        lr=1.0,
        eps=EPSILON,
    )
    schedule = make_schedule(num_steps, options)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(schedule(step)))

    def step(inputs, labels):
        tensors = {
            name: torch.as_tensor(array, device=bert.device).long()
            for name, array in (inputs | labels).items()
        }
        loss = loss_of(bert, tensors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
        return loss.item()

    return step
