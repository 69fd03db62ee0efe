"""The tasks of GLUE for `finetune_glue.py`: their files, columns, classes and metrics."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Files:
    """Where to find a task in a folder.

    Attributes:
        train: The training files, relative to the folder.
        validation: The validation files, relative to the folder. A dictionary for a task with
            several validation splits.
        fields: The columns of the texts, then the column of the label. `-1` is the last column.
        has_header: Whether the first line names the columns.
        skips_cut_lines: Whether lines with too few columns are left out.
    """

    train: tuple
    validation: tuple | dict
    fields: tuple
    has_header: bool = True
    skips_cut_lines: bool = False

    def of_split(self, split):
        """Return the files of a split."""
        if split == "train":
            return self.train
        return self.validation[split] if isinstance(self.validation, dict) else self.validation


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """How to read a task, and what a model predicts.

    Attributes:
        num_classes: Number of classes, or 1 for scores.
        metrics: Names of the official metrics. The first one chooses the learning rate.
        columns: The columns of the texts, then the column of the label, in TFDS and `datasets`.
        files: `Files` of each distribution. The first one that exists is read.
        classes: The labels in the files, in the order of the classes, or `None` for numbers.
        validation: Names of the validation splits, in TFDS and `datasets`.
    """

    num_classes: int
    metrics: tuple
    columns: tuple
    files: tuple
    classes: tuple | None = None
    validation: tuple = ("validation",)

    @property
    def results(self):
        """The names of all metrics on all validation splits, such as `"accuracy_matched"`."""
        return [result_name(name, split) for split in self.validation for name in self.metrics]


def result_name(metric, split):
    return metric + split.removeprefix("validation")


ENTAILMENT = ("entailment", "not_entailment")
MATCHED, MISMATCHED = "validation_matched", "validation_mismatched"

TASKS = {
    "mnli": GlueTask(
        num_classes=3,
        metrics=("accuracy",),
        columns=("premise", "hypothesis", "label"),
        files=(
            Files(
                ("MNLI/train.tsv",),
                {MATCHED: ("MNLI/dev_matched.tsv",), MISMATCHED: ("MNLI/dev_mismatched.tsv",)},
                fields=(8, 9, -1),
            ),
        ),
        classes=("entailment", "neutral", "contradiction"),
        validation=(MATCHED, MISMATCHED),
    ),
    "qqp": GlueTask(
        num_classes=2,
        metrics=("accuracy", "f1"),
        columns=("question1", "question2", "label"),
        # GLUE's training file has a few lines that are cut after a question.
        files=(
            Files(("QQP/train.tsv",), ("QQP/dev.tsv",), fields=(3, 4, 5), skips_cut_lines=True),
        ),
    ),
    "qnli": GlueTask(
        num_classes=2,
        metrics=("accuracy",),
        columns=("question", "sentence", "label"),
        files=(Files(("QNLI/train.tsv",), ("QNLI/dev.tsv",), fields=(1, 2, 3)),),
        classes=ENTAILMENT,
    ),
    "cola": GlueTask(
        num_classes=2,
        metrics=("matthews",),
        columns=("sentence", "label"),
        files=(
            Files(("CoLA/train.tsv",), ("CoLA/dev.tsv",), fields=(3, 1), has_header=False),
            Files(
                ("cola/in_domain_train.tsv",),
                ("cola/in_domain_dev.tsv", "cola/out_of_domain_dev.tsv"),
                fields=(3, 1),
                has_header=False,
            ),
        ),
    ),
    "sst2": GlueTask(
        num_classes=2,
        metrics=("accuracy",),
        columns=("sentence", "label"),
        files=(
            Files(("SST-2/train.tsv",), ("SST-2/dev.tsv",), fields=(0, 1)),
            # In this copy the 872 sentences of GLUE's validation split are in `test`.
            Files(("sst2_glue/train.tsv",), ("sst2_glue/test.tsv",), fields=(0, 1)),
        ),
    ),
    "rte": GlueTask(
        num_classes=2,
        metrics=("accuracy",),
        columns=("sentence1", "sentence2", "label"),
        files=(
            Files(("RTE/train.tsv",), ("RTE/dev.tsv",), fields=(1, 2, 3)),
            Files(("rte/train.tsv",), ("rte/dev.tsv",), fields=(1, 2, 3)),
        ),
        classes=ENTAILMENT,
    ),
    "stsb": GlueTask(
        num_classes=1,
        metrics=("pearson", "spearman"),
        columns=("sentence1", "sentence2", "label"),
        files=(
            Files(("STS-B/train.tsv",), ("STS-B/dev.tsv",), fields=(7, 8, 9)),
            Files(("stsb/sts-train.tsv",), ("stsb/sts-dev.tsv",), (5, 6, 4), has_header=False),
        ),
    ),
    "embedded": GlueTask(
        num_classes=2,
        metrics=("matthews", "accuracy"),
        columns=(),
        files=(),
    ),
}

# The columns of Tables 2, 8 and 9 of the paper. It names "accuracy" only (Table 2). That CoLA has
# the Matthews correlation, STS-B the Pearson correlation and QQP the accuracy is our inference.
MEAN_OF_THE_PAPER = (
    ("mnli", "accuracy_matched"),
    ("mnli", "accuracy_mismatched"),
    ("qqp", "accuracy"),
    ("qnli", "accuracy"),
    ("sst2", "accuracy"),
    ("cola", "matthews"),
    ("stsb", "pearson"),
)
