"""Fine-tune several models on SQuAD, and evaluate them in many languages.

The script trains a question answerer for each model, learning rate and seed. Then it evaluates F1
and exact match on SQuAD, XQuAD, MLQA and the gold passages of TyDiQA, language by language. At the
end you see a table with the median over the seeds at the best learning rate.

    python -m examples.paper.finetune_qa
    python -m examples.paper.finetune_qa --presets runs/diet_abs/preset --train train-v1.1.json \\
        --squad dev-v1.1.json --xquad xquad.*.json --mlqa MLQA/test-context-*.json \\
        --sequence-length 512 --epochs 3 --batch-size 32 --learning-rates 1e-5 2e-5 3e-5 4e-5 \\
        --seeds 0 1 2 3 4

The second command has the recipe of the paper (appendix A, Table 7: multilingual; section 4.2: five
trials). Warm-up takes a tenth of the steps, as in Table 7. The paper names no optimizer for
fine-tuning. AdamW and linear decay follow BERT. Without options, small random models answer
questions about stories that are made by rule. `--bert FOLDER` starts from a BERT of Hugging Face.

Each finished run adds a line to `runs.csv` in the output folder. To resume after an interruption,
give the same command again: finished runs are not repeated, and the run that was interrupted
continues at its last checkpoint. `results.csv`, `results.json`, `results.md` and `results.png`
summarize the runs with the same options. `predictions` holds the answers of each run in the format
of the official scripts. The script needs `keras-diet[examples]`.
"""

import itertools
import json
import sys

import keras
import keras_hub
from tqdm import tqdm

from examples.paper import common, qa_data, qa_results, run_table
from examples.paper.common import positive_int
from keras_diet import models, pretraining, training

DATA_SETS = ("squad", "xquad", "mlqa", "tydiqa")


def main(argv=None):
    arguments = parse_arguments(argv)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    table = arguments.output_dir / "runs.csv"
    train, evaluations = load_data(arguments)
    bar = tqdm(qa_results.missing_runs(table, arguments), disable=not sys.stderr.isatty())
    for model, runs in itertools.groupby(bar, lambda run: run["model"]):
        preprocessor = make_preprocessor(model, arguments)
        for run in runs:
            rate, seed = run["learning_rate"], run["seed"]
            folder = qa_results.TABLE.checkpoints(table, run)
            answerer = train_model(model, preprocessor, train, rate, seed, arguments, folder)
            name = f"{model}_{rate}_{seed}".replace("/", "_")
            found = evaluate(answerer, evaluations, arguments.output_dir, name, arguments)
            qa_results.TABLE.append(table, run, found)
            first = ", ".join(f"{key} {value:.1f}" for key, value in list(found.items())[:2])
            tqdm.write(f"{model}, {rate}, seed {seed}: {first}")
    rows = qa_results.summarize(qa_results.runs_to_compare(table, arguments))
    run_table.write_summary(rows, arguments.output_dir)
    (arguments.output_dir / "results.json").write_text(json.dumps(rows, indent=2) + "\n")
    print((arguments.output_dir / "results.md").read_text(encoding="utf-8"))


# === Step 1: data and models ===


def load_data(arguments):
    """Return the training questions, and the questions of each data set and language."""
    if not arguments.train:
        is_second = arguments.squad_version == "2.0"
        sets = {
            split: qa_data.embedded(split, is_second, most)
            for split, most in (
                ("train", arguments.examples),
                ("validation", arguments.evaluation_examples),
            )
        }
        return sets["train"], {("embedded", "en"): sets["validation"]}
    evaluations = {}
    for data_set in DATA_SETS:
        files = {}
        for file in getattr(arguments, data_set):
            files.setdefault(qa_data.language_of(file), []).append(file)
        for language, of_language in sorted(files.items()):
            questions = qa_data.read(of_language, arguments.evaluation_examples)
            evaluations[data_set, language] = questions
    return qa_data.read(arguments.train, arguments.examples), evaluations


def make_preprocessor(model, arguments):
    """Return a preprocessor with the tokenizer of a model, or of the embedded task."""
    if arguments.bert:
        tokenizer = models.DietBertTokenizer.from_bert(arguments.bert)
    elif arguments.presets:
        tokenizer = keras_hub.models.Tokenizer.from_preset(model)
    else:
        stories = qa_data.embedded("train")
        texts = [*stories.questions, *stories.contexts]
        tokenizer = models.DietBertTokenizer(
            pretraining.train_wordpiece_vocabulary(texts, 200, show_progress=False), lowercase=True
        )
    # `answer` computes shorter windows faster. Compilers compile one program for each length.
    length = arguments.sequence_length
    return models.DietBertQuestionAnswererPreprocessor(
        tokenizer, length, arguments.doc_stride, length_buckets=(length // 2,)
    )


def make_backbone(model, preprocessor, arguments):
    if arguments.bert:
        return models.DietBertBackbone.from_bert(
            arguments.bert,
            model,
            cls_token_id=preprocessor.tokenizer.cls_token_id,
            recompute=arguments.recompute,
        )
    if arguments.presets:
        backbone = models.DietBertBackbone.from_preset(model, recompute=arguments.recompute)
        return models.add_segments(backbone) if arguments.add_segments else backbone
    return models.DietBertBackbone(
        vocabulary_size=preprocessor.tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=arguments.sequence_length,
        position_encoding=model,
        segment_encoding="per-head" if model.startswith("diet") else "input",
        recompute=arguments.recompute,
    )


# === Step 2: a run ===


def train_model(model, preprocessor, train, learning_rate, seed, arguments, folder):
    """Return a question answerer that was trained on questions and answers.

    If there are checkpoints in the folder, the training continues there.
    """
    keras.utils.set_random_seed(seed)
    backbone = make_backbone(model, preprocessor, arguments)
    answerer = models.DietBertQuestionAnswerer(backbone, preprocessor)
    num_windows = len(preprocessor.windows(train.questions, train.contexts).examples)
    steps = arguments.epochs * -(-num_windows // arguments.batch_size)
    common.compile_for_training(answerer, learning_rate, steps, arguments)
    resume = training.ExactResume(folder, arguments.save_every)
    resume.fit(
        answerer,
        (train.questions, train.contexts),
        train.labels,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2 if arguments.verbose else 0,
    )
    return answerer


def evaluate(answerer, evaluations, folder, name, arguments):
    """Return F1 and exact match of each data set and language, and write the predictions."""
    found = {}
    for (data_set, language), questions in evaluations.items():
        # Only SQuAD 2.0 has questions without answer.
        has_none = arguments.squad_version == "2.0" and data_set in ("squad", "embedded")
        answers = answerer.answer(
            questions.questions,
            questions.contexts,
            null_threshold=arguments.null_threshold if has_none else None,
            batch_size=arguments.batch_size,
        )
        texts = [answer["text"] for answer in answers]
        file = folder / "predictions" / name / f"{data_set}.{language}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        predictions = dict(zip(questions.ids, texts, strict=True))
        file.write_text(json.dumps(predictions, ensure_ascii=False), encoding="utf-8")
        values = qa_results.evaluate(texts, questions, data_set, language, arguments.squad_version)
        found |= {
            f"{data_set}.{language}.{metric}": values[metric] for metric in qa_results.METRICS
        }
    return found


# === Options ===


def parse_arguments(argv=None):
    parser = common.make_parser(__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--presets", nargs="+", metavar="PRESET", help="folders, names or addresses of presets")
    add("--bert", metavar="FOLDER", help="start each --position-encoding from a BERT")
    add(
        "--position-encoding",
        nargs="+",
        default=["diet_rel", "diet_abs", "input"],
        help="encodings of the random models, or of the models that start from --bert",
    )
    add("--train", nargs="+", default=[], metavar="FILE", help="training files in SQuAD's format")
    for data_set in DATA_SETS:
        text = f"files of {data_set} to evaluate. Their names say the language"
        add(f"--{data_set}", nargs="+", default=[], metavar="FILE", help=text)
    add("--squad-version", choices=["1.1", "2.0"], default="1.1", help="2.0 has no-answers")
    add("--null-threshold", type=float, default=0.0, help="of `answer`, with --squad-version 2.0")
    add("--sequence-length", type=positive_int, help="tokens, by default 384, embedded 40")
    add("--doc-stride", type=positive_int, help="tokens, by default 128, embedded 16")
    add("--learning-rates", nargs="+", type=float, default=[2e-3], help="peak rates to try")
    add("--seeds", nargs="+", type=int, default=[0], help="one run for each rate and seed")
    add("--epochs", type=positive_int, default=6, help="passes over the windows")
    add("--batch-size", type=positive_int, default=32, help="windows in a batch")
    common.add_training_options(add, warmup_proportion=0.1)
    add("--examples", type=positive_int, help="most training questions; default: all")
    add("--evaluation-examples", type=positive_int, help="most questions of a language to evaluate")
    add("--add-segments", action="store_true", help="add segments to presets without segments")
    add("--verbose", action="store_true", help="print the loss of each epoch")
    common.add_output_option(add, "finetune_qa", "folder for all results")
    arguments = parser.parse_args(argv)
    if arguments.presets and arguments.bert:
        parser.error("--presets and --bert exclude each other. Received: both")
    has_evaluation = any(getattr(arguments, data_set) for data_set in DATA_SETS)
    if bool(arguments.train) != has_evaluation:
        parser.error("--train needs one of --squad, --xquad, --mlqa, --tydiqa, and the reverse")
    arguments.models = arguments.presets or arguments.position_encoding
    arguments.sequence_length = arguments.sequence_length or (384 if arguments.train else 40)
    arguments.doc_stride = arguments.doc_stride or (128 if arguments.train else 16)
    arguments.backend, arguments.strategy = keras.config.backend(), "none"
    return arguments


if __name__ == "__main__":
    main()
