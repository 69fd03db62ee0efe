"""Packing with Apache Beam, and the files that it writes, against packing in one process."""

import os
import pickle
import shutil
import sys

import numpy as np
import pytest

from keras_diet import pretraining
from keras_diet.models import DietBertTokenizer

module = sys.modules["keras_diet.pretraining.pack_with_beam"]
pytestmark = pytest.mark.any_backend
pytest.importorskip("array_record")
LENGTH = 7
WORDS = ["alpha", "beta", "gamma", "delta", "."]
# Padding is not 0.
VOCABULARY = ["[MASK]", "[CLS]", "[PAD]", "[UNK]", "[SEP]", *WORDS]


@pytest.fixture(scope="module")
def tokenizer():
    return DietBertTokenizer(VOCABULARY, lowercase=True)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Five text files of different lengths. The third one is empty."""
    paths, folder, rng = [], tmp_path_factory.mktemp("texts"), np.random.default_rng(11)
    for i, documents in enumerate((3, 7, 0, 1, 5)):
        lines = [" ".join(rng.choice(WORDS, 11)) + " .\n\n" for _ in range(documents)]
        paths.append(folder / f"{i}.txt")
        paths[-1].write_text("".join(lines), encoding="utf-8")
    return paths


def in_one_process(paths, tokenizer, length=LENGTH, **options):
    texts = [pretraining.read_documents(path) for path in paths if path.read_text()]
    return [
        np.stack(list(pretraining.pack_sentences(text, tokenizer, length, **options)))
        for text in texts
    ]


@pytest.fixture(scope="module")
def folder(paths, tokenizer, tmp_path_factory):
    pytest.importorskip("apache_beam")
    folder = tmp_path_factory.mktemp("original") / "packed"
    pretraining.pack_with_beam(paths, tokenizer, LENGTH, folder)
    return folder


@pytest.fixture(scope="module")
def read_only(folder):
    """Opening the files takes a second."""
    return pretraining.PackedShards(folder)


@pytest.fixture
def packed(folder, tmp_path):
    """A copy that a test may change."""
    return pretraining.PackedShards(shutil.copytree(folder, tmp_path / "packed"))


def test_a_folder_that_is_packed_again_with_another_tokenizer(paths, tokenizer, tmp_path):
    """Workers may live in one process, and keep the tokenizer of a folder."""
    pytest.importorskip("apache_beam")
    pretraining.pack_with_beam(paths, tokenizer, LENGTH, tmp_path / "packed")
    shutil.rmtree(tmp_path / "packed")
    other = DietBertTokenizer([*VOCABULARY[:5], *reversed(WORDS)], lowercase=True)
    options = {"document_masks": True}
    again = pretraining.pack_with_beam(paths, other, 31, tmp_path / "packed", **options)
    expected = np.concatenate(in_one_process(paths, other, 31, **options))
    np.testing.assert_array_equal(again[:], expected)
    assert np.any(np.sum(again[:] == other.cls_token_id, axis=1) == 2)


def test_names_of_many_files_sort():
    for count in (100_000, 100_001):
        names = module._shard_names(count)
        assert names == sorted(set(names))
        assert len(names) == count


def test_workers_may_finish_in_any_order(packed, paths, tokenizer, tmp_path):
    """The metadata has the files in the order of the texts, which is that of their names."""
    counts = list(map(len, in_one_process(paths, tokenizer)))
    counts.insert(2, 0)
    names = [f"tokens-{i:05}-of-00005.arrayrecord" for i in range(5)]
    finished = [(names[i], counts[i]) for i in (3, 0, 4, 2, 1)]
    module._write_metadata(finished, str(tmp_path / "packed"), LENGTH, "uint16")
    np.testing.assert_array_equal(pretraining.PackedShards(tmp_path / "packed")[:], packed[:])


def test_the_sequences_are_those_of_one_process(read_only, paths, tokenizer):
    expected = np.concatenate(in_one_process(paths, tokenizer))
    assert read_only.shape == expected.shape
    assert read_only.dtype == "uint16"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(read_only))[:], expected)


@pytest.mark.parametrize("rows", [3, -1, slice(2, 9, 3), [5, 0, 5], [[1], [2]], []])
def test_rows_are_those_of_an_array(read_only, rows):
    rows = np.array(rows, "int64") if isinstance(rows, list) else rows
    np.testing.assert_array_equal(read_only[rows], read_only[:][rows])


def test_rows_that_do_not_exist_are_an_error(read_only):
    for row in (len(read_only), -len(read_only) - 1, [0, 10_000]):
        with pytest.raises(IndexError):
            read_only[row]


def test_a_text_that_has_changed_is_refused(tmp_path, tokenizer):
    """Also if it has the same size. What a killed worker left is deleted by the next call."""
    text = tmp_path / "a.txt"
    text.write_text("One ran.\n", encoding="utf-8")
    pretraining.pack_with_beam([text], tokenizer, LENGTH, tmp_path / "packed")
    left = tmp_path / "packed" / "unfinished-1.arrayrecord"
    left.write_text("half")
    pretraining.pack_with_beam([text], tokenizer, LENGTH, tmp_path / "packed")
    assert not left.exists()
    text.write_text("Two ran.\n", encoding="utf-8")
    os.utime(text, ns=(1, 1))
    with pytest.raises(ValueError, match="other values of: paths"):
        pretraining.pack_with_beam([text], tokenizer, LENGTH, tmp_path / "packed")


def test_each_process_reads_its_own_files(folder, paths, tokenizer):
    files = in_one_process(paths, tokenizer)
    for process, own in enumerate(([files[0], files[3]], [files[1]], [files[2]])):
        part = pretraining.PackedShards(folder, process, 3)
        np.testing.assert_array_equal(part[:], np.concatenate(own))


def test_a_failed_worker_loses_and_doubles_nothing(paths, tokenizer, tmp_path, monkeypatch):
    pytest.importorskip("apache_beam")
    folder = tmp_path / "packed"
    pack = module.pack_sentences

    def failing(documents, *args):
        for count, sequence in enumerate(pack(documents, *args)):
            # Only the second file has so many sequences.
            if count == 10:
                raise OSError("the worker is gone")
            yield sequence

    monkeypatch.setattr(module, "pack_sentences", failing)
    with pytest.raises(OSError, match="the worker is gone"):
        pretraining.pack_with_beam(paths, tokenizer, LENGTH, folder)
    assert not list(folder.glob("unfinished*"))
    with pytest.raises(ValueError, match=r"without metadata.json. Run `pack_with_beam` again"):
        pretraining.PackedShards(folder)
    # What is finished is not made again.
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("*.arrayrecord")}
    assert [path.name for path in finished] == ["tokens-00000-of-00005.arrayrecord"]

    monkeypatch.undo()
    packed = pretraining.pack_with_beam(paths, tokenizer, LENGTH, folder)
    assert all(path.stat().st_mtime_ns == time for path, time in finished.items())
    np.testing.assert_array_equal(packed[:], np.concatenate(in_one_process(paths, tokenizer)))


def test_a_folder_of_another_call_is_refused(packed, paths, tokenizer, tmp_path):
    folder, others = tmp_path / "packed", DietBertTokenizer(VOCABULARY[::-1], lowercase=True)
    calls = {
        "sequence_length": (paths, tokenizer, LENGTH + 1),
        "tokenizer": (paths, others, LENGTH),
        "paths": (paths[::-1], tokenizer, LENGTH),
        "document_masks": (paths, tokenizer, LENGTH),
    }
    for name, arguments in calls.items():
        options = {"document_masks": name == "document_masks"}
        with pytest.raises(ValueError, match=f"other values of: {name}. Choose another folder"):
            pretraining.pack_with_beam(*arguments, folder, **options)
    assert not list(folder.glob("unfinished*"))
    np.testing.assert_array_equal(pretraining.PackedShards(folder)[:], packed[:])


@pytest.mark.parametrize("process_index, process_count", [(0, 5), (3, 3), (-1, 3), (0, 0)])
def test_impossible_processes(folder, process_index, process_count):
    message = f"process_index={process_index}, process_count={process_count}, and 4 such files"
    with pytest.raises(ValueError, match=message):
        pretraining.PackedShards(folder, process_index, process_count)


def test_errors_of_the_text_and_of_the_arguments(paths, tokenizer, tmp_path):
    pytest.importorskip("apache_beam")
    with pytest.raises(ValueError, match="process_count=1, and 0 such files"):
        pretraining.pack_with_beam(paths[2], tokenizer, LENGTH, tmp_path / "empty")
    # The arguments are checked before a worker starts.
    for text, length, error in ((tmp_path / "no.txt", 7, OSError), (paths, 2, ValueError)):
        with pytest.raises(error, match=r"no\.txt|`sequence_length` must be at least 3"):
            pretraining.pack_with_beam(text, tokenizer, length, tmp_path / "wrong")
        assert not (tmp_path / "wrong").exists()
