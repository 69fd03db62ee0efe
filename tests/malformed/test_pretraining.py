"""Malformed data and arguments of the functions for pretraining."""

import numpy as np
import pytest

from keras_diet import pretraining as P
from keras_diet.models import DietBertTokenizer as T
from tests.malformed.refusals import assert_refused, cases
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import VOCABULARY

pytestmark = pytest.mark.any_backend

TK = T(VOCABULARY)
IDS = np.array([[2, 5, 6, 7, 8, 9, 3, 0], [2, 9, 8, 7, 6, 5, 10, 3]])
docs = [["the quick fox. a dog.", "red cat."], ["the bird."]]
pre = tiny_preprocessor
W = P.WarmupLinearDecay


def mt(ids=IDS, rng=None, **arguments):
    rng = np.random.default_rng(0) if rng is None else rng
    defaults = {
        "vocabulary_size": 31,
        "mask_token_id": 4,
        "unselectable_token_ids": [0, 1, 2, 3, 4],
    }
    return lambda: P.mask_tokens(ids, rng, **{**defaults, **arguments})


def pk(d=docs, t=TK, n=8):
    return lambda: list(P.pack_sentences(d, t, n))


def wr(sequences, path="tokens.npy", n=8, **arguments):
    return lambda: P.write_packed(sequences, path, n, show_progress=False, **arguments)


def ds(ids=IDS, t=TK, b=2, **arguments):
    return lambda: P.masked_lm_dataset(ids, t, b, **arguments)[0]


def vo(texts=("the quick fox", "the quick dog"), n=60, **arguments):
    return lambda: P.train_wordpiece_vocabulary(texts, n, show_progress=False, **arguments)


@pytest.fixture(autouse=True)
def in_a_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


PRETRAINING = {
    "mask_tokens: rate 0": (
        mt(mask_selection_rate=0),
        "`mask_selection_rate` must be above 0, ... Received: mask_selection_rate=0",
    ),
    "mask_tokens: rate 15": (
        mt(mask_selection_rate=15),
        "`mask_selection_rate` must be a number in ... Received: mask_selection_rate=15",
    ),
    "mask_tokens: rate str": (
        mt(mask_selection_rate="0.15"),
        "`mask_selection_rate` must be a number ... Received: mask_selection_rate='0.15'",
    ),
    "mask_tokens: rate nan": (
        mt(mask_selection_rate=float("nan")),
        "`mask_selection_rate` must be a number in ... Received: mask_selection_rate=nan",
    ),
    "mask_tokens: rate True": (
        mt(mask_selection_rate=True),
        "`mask_selection_rate` must be a number ... Received: mask_selection_rate=True",
    ),
    "mask_tokens: sum": (
        mt(mask_token_rate=0.9, random_token_rate=0.2),
        "`mask_token_rate` and `random_token_rate` ... Received: mask_token_rate=0.9,",
    ),
    "mask_tokens: negative": (
        mt(random_token_rate=-0.1),
        "`random_token_rate` must be a number in ... Received: random_token_rate=-0.1",
    ),
    "mask_tokens: length 0": (
        mt(mask_selection_length=0),
        "`mask_selection_length` must be a ... Received: mask_selection_length=0",
    ),
    "mask_tokens: length float": (
        mt(mask_selection_length=2.5),
        "`mask_selection_length` must be a ... Received: mask_selection_length=2.5",
    ),
    "mask_tokens: ids float": (
        mt(IDS + 0.0),
        "`token_ids` must be a non-empty array ... Received: shape=(2, 8), dtype=float64",
    ),
    "mask_tokens: ids text": (
        mt(["a b"]),
        "`token_ids` must be a non-empty array of ... Received: shape=(1,), dtype=<U3",
    ),
    "mask_tokens: ids out of range": (
        mt(IDS + 30),
        "`token_ids` must be in [0, vocabulary_size) = ... Received: ids from 30 to 40",
    ),
    "mask_tokens: ids negative": (
        mt(-IDS),
        "`token_ids` must be in [0, vocabulary_size) = ... Received: ids from -10 to 0",
    ),
    "mask_tokens: ids empty": (
        mt(IDS[:0]),
        "`token_ids` must be a non-empty array ... Received: shape=(0, 8), dtype=int64",
    ),
    "mask_tokens: ids scalar": (
        mt(np.array(5)),
        "`token_ids` must be a non-empty array of ... Received: shape=(), dtype=int64",
    ),
    "mask_tokens: ids None": (
        mt(None),
        "`token_ids` must be a non-empty array ... Received: None, or lists of different",
    ),
    "mask_tokens: ids ragged": (
        mt([[1, 2], [3]]),
        "`token_ids` must be a non-empty array ... Received: None, or lists of different",
    ),
    "mask_tokens: rng seed": (
        mt(rng=7),
        "`random_generator` must be a `np.random.Generator`. ... Received: int",
    ),
    "mask_tokens: rng module": (
        mt(rng=np.random),
        "`random_generator` must be a `np.random.Generator`. ... Received: module",
    ),
    "mask_tokens: rng None": (
        lambda: P.mask_tokens(
            IDS, None, vocabulary_size=31, mask_token_id=4, unselectable_token_ids=[0]
        ),
        "`random_generator` must be a `np.random.Generator`. ... Received: NoneType",
    ),
    "mask_tokens: rng RandomState": (
        mt(rng=np.random.RandomState(0)),
        "`random_generator` must be a `np.random.Generator`. ... Received: RandomState",
    ),
    "mask_tokens: mask id out of range": (
        mt(mask_token_id=31),
        "`mask_token_id`, `pad_token_id` and `unselectable_token_ids` ... Received: 31",
    ),
    "mask_tokens: mask id None": (
        mt(mask_token_id=None),
        "`mask_token_id`, `pad_token_id` and `unselectable_token_ids` ... Received: None",
    ),
    "mask_tokens: mask id str": (
        mt(mask_token_id="[MASK]"),
        "`mask_token_id`, `pad_token_id` and ... Received: '[MASK]'",
    ),
    "mask_tokens: unselectable int": (
        mt(unselectable_token_ids=3),
        "`unselectable_token_ids` must be a list of integers. ... Received: 3",
    ),
    "mask_tokens: unselectable str": (
        mt(unselectable_token_ids="[CLS]"),
        "`mask_token_id`, `pad_token_id` and `unselectable_token_ids` ... Received: '['",
    ),
    "mask_tokens: unselectable all": (
        mt(unselectable_token_ids=range(31)),
        "`unselectable_token_ids` must leave ... Received: all 31 ids of the vocabulary.",
    ),
    "mask_tokens: unselectable float": (
        mt(unselectable_token_ids=[1.0]),
        "`mask_token_id`, `pad_token_id` and `unselectable_token_ids` ... Received: 1.0",
    ),
    "mask_tokens: padding mask out of range": (
        mt(pad_token_id=-1),
        "`mask_token_id`, `pad_token_id` and `unselectable_token_ids` ... Received: -1",
    ),
    "mask_tokens: vocab 0": (
        mt(vocabulary_size=0),
        "`vocabulary_size` must be a positive integer. ... Received: vocabulary_size=0",
    ),
    "mask_tokens: vocab small": (
        mt(vocabulary_size=9),
        "`token_ids` must be in [0, vocabulary_size) = ... Received: ids from 0 to 10",
    ),
    "mask_tokens: ids bool": (
        mt(IDS > 3),
        "`token_ids` must be a non-empty array of ... Received: shape=(2, 8), dtype=bool",
    ),
    "mask_tokens: ids length 0": (
        mt(IDS[:, :0]),
        "`token_ids` must be a non-empty array ... Received: shape=(2, 0), dtype=int64",
    ),
    "pack_sentences: docs string": (
        pk("the fox"),
        "`documents` must contain lists of lines. ... Received: the string 't'",
    ),
    "pack_sentences: docs list of strings": (
        pk(["the fox", "a dog"]),
        "`documents` must contain lists of lines. ... Received: the string 'the fox'",
    ),
    "pack_sentences: docs None": (
        pk(None),
        "`documents` must be a list or another iterable. ... Received: None",
    ),
    "pack_sentences: docs number": (
        pk([3]),
        "`documents` must contain lists of lines. ... Received: the int 3",
    ),
    "pack_sentences: lines None": (
        pk([["the", None]]),
        "`text` must be a string. ... Received: text=None of <class 'NoneType'>",
    ),
    "pack_sentences: lines ids": (
        pk([[5, 6]]),
        "`text` must be a string. ... Received: text=5 of <class 'int'>",
    ),
    "pack_sentences: lines bytes": (
        pk([[b"the fox"]]),
        "`text` must be a string. ... Received: text=b'the fox' of <class 'bytes'>",
    ),
    "pack_sentences: doc dict": (
        pk([{"text": "the fox"}]),
        "`documents` must contain lists of ... Received: the dict {'text': 'the fox'}",
    ),
    "pack_sentences: doc bytes": (
        pk([b"the fox"]),
        "`documents` must contain lists of lines. ... Received: the bytes b'the fox'",
    ),
    "pack_sentences: length 2": (
        pk(n=2),
        "`sequence_length` must be at least 3: [CLS], ... Received: sequence_length=2",
    ),
    "pack_sentences: length None": (
        pk(n=None),
        "`sequence_length` must be a positive integer. ... Received: sequence_length=None",
    ),
    "pack_sentences: length float": (
        pk(n=8.0),
        "`sequence_length` must be a positive integer. ... Received: sequence_length=8.0",
    ),
    "pack_sentences: length str": (
        pk(n="8"),
        "`sequence_length` must be a positive integer. ... Received: sequence_length='8'",
    ),
    "pack_sentences: None": (
        pk(t=None),
        "`tokenizer` must have `cls_token_id`, as BERT's ... Received: tokenizer=None",
    ),
    "pack_sentences: str": (
        pk(t="bert"),
        "`tokenizer` must have `cls_token_id`, as BERT's ... Received: tokenizer='bert'",
    ),
    "pack_sentences: class": (
        pk(t=T),
        "`tokenizer` must have `cls_token_id`, as BERT's ... Received: tokenizer=<class",
    ),
    "pack_sentences: padded": (
        pk(t=T(VOCABULARY, sequence_length=8)),
        "`tokenizer` must not pad or ... Received: a tokenizer with sequence_length=8",
    ),
    "pack_sentences: string": (
        pk(t=T(VOCABULARY, dtype="string")),
        "`tokenizer` must return integers. ... Received: a tokenizer with dtype='string'",
    ),
    "pack_sentences: preprocessor": (
        pk(t=pre("classifier")),
        "`tokenizer` must have ... Received: tokenizer=<DietBertTextClassifierP",
    ),
    "pack_sentences: no vocabulary": (
        pk(t=T()),
        "`tokenizer` must have ... Received: tokenizer=<DietBertTokenizer",
    ),
    "pack_sentences: docs dict": (
        pk({"a": ["the fox"]}),
        "`documents` must contain lists of lines. ... Received: the string 'a'",
    ),
    "write_packed: none": (
        wr([]),
        "`sequences` must contain at least one sequence. ... Received: none",
    ),
    "write_packed: shape": (
        wr([IDS[0][:5]]),
        "`sequences` must contain integer arrays ... Received: shape=(5,), dtype=int64",
    ),
    "write_packed: float": (
        wr([IDS[0] * 1.0]),
        "`sequences` must contain integer arrays ... Received: shape=(8,), dtype=float64",
    ),
    "write_packed: out of range": (
        wr([IDS[0]], vocabulary_size=5),
        "`sequences` must contain token ids in [0, 5). ... Received: ids from 0 to 9",
    ),
    "write_packed: negative": (
        wr([-IDS[0]]),
        "`sequences` must contain token ids in [0, ... Received: ids from -9 to 0",
    ),
    "write_packed: 2D": (
        wr([IDS]),
        "`sequences` must contain integer arrays ... Received: shape=(2, 8), dtype=int64",
    ),
    "write_packed: no folder": (
        wr([IDS[0]], "/nonexistent/t.npy"),
        "The output path must be a file in an ... Received: '/nonexistent/t.npy'",
    ),
    "write_packed: length 0": (
        wr([IDS[0]], n=0),
        "`sequence_length` must be a positive integer. ... Received: sequence_length=0",
    ),
    "write_packed: vocab 0": (
        wr([IDS[0]], vocabulary_size=0),
        "`vocabulary_size` must be a positive integer. ... Received: vocabulary_size=0",
    ),
    "write_packed: seq None": (
        wr(None),
        "`sequences` must be a list or another iterable. ... Received: None",
    ),
    "write_packed: path None": (
        wr([IDS[0]], None),
        "The output path must be a string or a path. ... Received: None",
    ),
    "write_packed: seq strings": (
        wr(["abc"]),
        "`sequences` must contain integer arrays of ... Received: shape=(), dtype=<U3",
    ),
    "write_packed: path int": (
        wr([IDS[0]], 3),
        "The output path must be a string or a path. ... Received: 3",
    ),
    "write_packed: seq ragged": (
        wr([IDS[0], IDS[0][:3]]),
        "`sequences` must contain integer arrays ... Received: shape=(3,), dtype=int64",
    ),
    "read_documents: missing": (
        lambda: list(P.read_documents("/nonexistent.txt")),
        "`paths` must name text ... Received: '/nonexistent.txt', which does not exist.",
    ),
    "read_documents: []": (
        lambda: P.read_documents([]),
        "`paths` must name at least one text file. ... Received: paths=[]",
    ),
    "read_documents: None": (
        lambda: P.read_documents(None),
        "`paths` must be a list or another iterable. ... Received: None",
    ),
    "read_documents: int": (
        lambda: P.read_documents(3),
        "`paths` must be a list or another iterable. ... Received: 3",
    ),
    "read_documents: list int": (
        lambda: P.read_documents([3]),
        "`paths` must name text files. ... Received: 3 of <class 'int'>",
    ),
    "read_documents: bytes": (
        lambda: P.read_documents(b"a.txt"),
        "`paths` must be a list or another iterable. ... Received: b'a.txt'",
    ),
    "read_documents: text itself": (
        lambda: P.read_documents("the quick fox\njumps"),
        "`paths` must name text files. ... Received: 'the quick fox",
    ),
    "read_documents: long text": (
        lambda: P.read_documents("the fox " * 1000),
        "`paths` must name text ... Received: 'the fox the fox the fox the fox the fox",
    ),
    "read_documents: list None": (
        lambda: P.read_documents([None]),
        "`paths` must name text files. ... Received: None of <class 'NoneType'>",
    ),
    "split_sentences: list": (
        lambda: P.split_sentences(["a"]),
        "`text` must be a string. ... Received: text=['a'] of <class 'list'>",
    ),
    "split_sentences: None": (
        lambda: P.split_sentences(None),
        "`text` must be a string. ... Received: text=None of <class 'NoneType'>",
    ),
    "split_sentences: bytes": (
        lambda: P.split_sentences(b"a."),
        "`text` must be a string. ... Received: text=b'a.' of <class 'bytes'>",
    ),
    "masked_lm_dataset: ids list": (
        ds(IDS.tolist()),
        "`token_ids` must be a NumPy ... Received: shape=(), dtype=None, type=<class",
    ),
    "masked_lm_dataset: ids 1D": (
        ds(IDS[0]),
        "`token_ids` must be a NumPy array of ... Received: shape=(8,), dtype=int64,",
    ),
    "masked_lm_dataset: ids float": (
        ds(IDS * 1.0),
        "`token_ids` must be a NumPy array of ... Received: shape=(2, 8), dtype=float64,",
    ),
    "masked_lm_dataset: ids out of range": (
        ds(IDS + 30),
        "`token_ids` must be in [0, vocabulary_size) = ... Received: ids from 30 to 40",
    ),
    "masked_lm_dataset: ids path": (
        ds("tokens.npy"),
        "`token_ids` must be a NumPy ... Received: shape=(), dtype=None, type=<class",
    ),
    "masked_lm_dataset: None": (
        ds(t=None),
        "`tokenizer` must have `mask_token_id`, as BERT's ... Received: tokenizer=None",
    ),
    "masked_lm_dataset: vocab": (
        ds(t=VOCABULARY),
        "`tokenizer` must have ... Received: tokenizer=['[PAD]', '[UNK]',",
    ),
    "masked_lm_dataset: batch 0": (
        ds(b=0),
        "`batch_size` must be a positive integer. ... Received: batch_size=0",
    ),
    "masked_lm_dataset: batch big": (
        ds(b=3),
        "`batch_size` must not exceed the ... Received: batch_size=3 with 2 sequences",
    ),
    "masked_lm_dataset: batch float": (
        ds(b=2.0),
        "`batch_size` must be a positive integer. ... Received: batch_size=2.0",
    ),
    "masked_lm_dataset: seed negative": (
        ds(seed=-1),
        "`seed` must be an integer in [0, 2**32). ... Received: seed=-1",
    ),
    "masked_lm_dataset: seed None": (
        ds(seed=None),
        "`seed` must be an integer in [0, 2**32). ... Received: seed=None",
    ),
    "masked_lm_dataset: seed float": (
        ds(seed=1.5),
        "`seed` must be an integer in [0, 2**32). ... Received: seed=1.5",
    ),
    "masked_lm_dataset: seed True": (
        ds(seed=True),
        "`seed` must be an integer in [0, 2**32). ... Received: seed=True",
    ),
    "masked_lm_dataset: shuffle str": (
        ds(shuffle="no"),
        "`shuffle` must be one of False, True. ... Received: shuffle='no'",
    ),
    "masked_lm_dataset: repeat int": (
        ds(repeat=3),
        "`repeat` must be one of False, True. ... Received: repeat=3",
    ),
    "masked_lm_dataset: rate": (
        ds(mask_selection_rate=15),
        "`mask_selection_rate` must be a number in ... Received: mask_selection_rate=15",
    ),
    "masked_lm_dataset: rates": (
        ds(mask_token_rate=0.95),
        "`mask_token_rate` and `random_token_rate` ... Received: mask_token_rate=0.95,",
    ),
    "masked_lm_dataset: length": (
        ds(mask_selection_length=0),
        "`mask_selection_length` must be a ... Received: mask_selection_length=0",
    ),
    "masked_lm_dataset: segments 0": (
        ds(num_segments=0),
        "`num_segments` must be a positive integer. ... Received: num_segments=0",
    ),
    "masked_lm_dataset: segments str": (
        ds(num_segments="2"),
        "`num_segments` must be a positive integer. ... Received: num_segments='2'",
    ),
    "masked_lm_dataset: ids empty": (
        ds(IDS[:0]),
        "`token_ids` must be a non-empty array ... Received: shape=(0, 8), dtype=int64",
    ),
    "masked_lm_dataset: ids generator": (
        ds(iter(IDS)),
        "`token_ids` must be a NumPy ... Received: shape=(), dtype=None, type=<class",
    ),
    "masked_lm_dataset: ids 3D": (
        ds(IDS[None]),
        "`token_ids` must be a NumPy array ... Received: shape=(1, 2, 8), dtype=int64,",
    ),
    "masked_lm_dataset: drop str": (
        ds(drop_remainder="no"),
        "`drop_remainder` must be one of False, True. ... Received: drop_remainder='no'",
    ),
    "as_tf_dataset: None": (
        lambda: P.as_tf_dataset(None),
        "`dataset` must be a non-empty `grain.MapDataset`, such as ... Received: None",
    ),
    "as_tf_dataset: array": (
        lambda: P.as_tf_dataset(IDS),
        "`dataset` must be a non-empty ... Received: array([[ 2,  5,  6,  7,  8,  9, ",
    ),
    "as_tf_dataset: iter": (
        lambda: P.as_tf_dataset(P.masked_lm_dataset(IDS, TK, 2).to_iter_dataset()),
        "`dataset` must be a non-empty ... Received: <grain._src.python.dataset.transfo",
    ),
    "as_tf_dataset: empty": (
        lambda: P.as_tf_dataset(P.masked_lm_dataset(IDS, TK, 2)[0:0]),
        "`dataset` must be a non-empty ... Received: <grain._src.python.dataset.transfo",
    ),
    "vocabulary: string": (
        vo("the fox"),
        "`texts` must be an iterable of strings, not one string. ... Received: 'the fox'",
    ),
    "vocabulary: None": (
        vo(None),
        "`texts` must be a list or another iterable. ... Received: None",
    ),
    "vocabulary: list none": (
        vo(["a", None]),
        "`texts` must contain strings. ... Received: None of <class 'NoneType'>",
    ),
    "vocabulary: bytes": (
        vo([b"a"]),
        "`texts` must contain strings. ... Received: b'a' of <class 'bytes'>",
    ),
    "vocabulary: empty": (
        vo([]),
        "Empty training text: `texts` must contain at least one ... Received: no words",
    ),
    "vocabulary: blank": (
        vo([" "]),
        "Empty training text: `texts` must contain at least one ... Received: no words",
    ),
    "vocabulary: n small": (
        vo(n=8),
        "`vocabulary_size` must have room for 5 special ... Received: vocabulary_size=8",
    ),
    "vocabulary: n 0": (
        vo(n=0),
        "`vocabulary_size` must be a positive integer. ... Received: vocabulary_size=0",
    ),
    "vocabulary: n float": (
        vo(n=60.0),
        "`vocabulary_size` must be a positive integer. ... Received: vocabulary_size=60.0",
    ),
    "vocabulary: special str": (
        vo(special_tokens="[PAD]"),
        "`special_tokens` must start with '[PAD]', ... Received: special_tokens='[PAD]'",
    ),
    "vocabulary: special order": (
        vo(special_tokens=["[UNK]", "[PAD]"]),
        "`special_tokens` must start ... Received: special_tokens=['[UNK]', '[PAD]']",
    ),
    "vocabulary: special dup": (
        vo(special_tokens=["[PAD]", "[UNK]", "[UNK]"]),
        "`special_tokens` must start ... Received: special_tokens=['[PAD]', '[UNK]',",
    ),
    "vocabulary: special int": (
        vo(special_tokens=["[PAD]", "[UNK]", 3]),
        "`special_tokens` must start ... Received: special_tokens=['[PAD]', '[UNK]',",
    ),
    "vocabulary: special None": (
        vo(special_tokens=None),
        "`special_tokens` must be a list or another iterable. ... Received: None",
    ),
    "vocabulary: min 0": (
        vo(min_frequency=0),
        "`min_frequency` must be a positive integer. ... Received: min_frequency=0",
    ),
    "vocabulary: alphabet 0": (
        vo(limit_alphabet=0),
        "`limit_alphabet` must be a positive integer. ... Received: limit_alphabet=0",
    ),
    "vocabulary: lists": (
        vo([["the fox"]]),
        "`texts` must contain strings. ... Received: ['the fox'] of <class 'list'>",
    ),
    "vocabulary: lowercase str": (
        vo(lowercase="no"),
        "`lowercase` must be one of False, True. ... Received: lowercase='no'",
    ),
    "warm-up: peak 0": (
        lambda: W(0.0, 100),
        "`peak_learning_rate` must be a positive, ... Received: peak_learning_rate=0.0",
    ),
    "warm-up: peak negative": (
        lambda: W(-0.001, 100),
        "`peak_learning_rate` must be a ... Received: peak_learning_rate=-0.001",
    ),
    "warm-up: peak str": (
        lambda: W("1e-3", 100),
        "`peak_learning_rate` must be a ... Received: peak_learning_rate='1e-3'",
    ),
    "warm-up: peak nan": (
        lambda: W(float("nan"), 100),
        "`peak_learning_rate` must be a positive, ... Received: peak_learning_rate=nan",
    ),
    "warm-up: steps 0": (
        lambda: W(0.001, 0),
        "`total_steps` must be a positive integer. ... Received: total_steps=0",
    ),
    "warm-up: steps float": (
        lambda: W(0.001, 100.0),
        "`total_steps` must be a positive integer. ... Received: total_steps=100.0",
    ),
    "warm-up: steps None": (
        lambda: W(0.001, None),
        "`total_steps` must be a positive integer. ... Received: total_steps=None",
    ),
    "warm-up: warm 1": (
        lambda: W(0.001, 100, 1.0),
        "`warmup_proportion` must be a number in [0, ... Received: warmup_proportion=1.0",
    ),
    "warm-up: warm negative": (
        lambda: W(0.001, 100, -0.1),
        "`warmup_proportion` must be a number in ... Received: warmup_proportion=-0.1",
    ),
    "warm-up: warm steps": (
        lambda: W(0.001, 100, 10),
        "`warmup_proportion` must be a number in [0, ... Received: warmup_proportion=10",
    ),
    "warm-up: warm str": (
        lambda: W(0.001, 100, "0.1"),
        "`warmup_proportion` must be a number in ... Received: warmup_proportion='0.1'",
    ),
    "warm-up: peak schedule": (
        lambda: W(W(0.001, 100), 100),
        "`peak_learning_rate` must be a ... Received: peak_learning_rate=<keras_diet.tra",
    ),
    "warm-up: warm nan": (
        lambda: W(0.001, 100, float("nan")),
        "`warmup_proportion` must be a number in [0, ... Received: warmup_proportion=nan",
    ),
    "warm-up: peak True": (
        lambda: W(True, 100),
        "`peak_learning_rate` must be a positive, ... Received: peak_learning_rate=True",
    ),
}


@cases(PRETRAINING)
def test_pretraining(sent, message):
    assert_refused(sent, message)
