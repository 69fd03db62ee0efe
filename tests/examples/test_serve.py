"""The service of lesson 9: answers to many clients at a time, wrong requests, and its end."""

import concurrent.futures
import contextlib
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_diet.models import (
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import assert_close
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.any_backend

SCRIPT = Path(__file__).parents[2] / "examples/serve.py"
CLIENTS, WARM_UP, REQUESTS = 16, 200, 1000
# Of 4 to 11 tokens. Special tokens in a text are what the tokenizer in Keras takes them for.
TEXTS = [
    "red cat",
    "the birds sing in a tall tree .",
    "foxes and cats sleep .",
    "the [MASK] jumps over",
]
PAIRS = [("the [MASK] fox", "the red dog"), ("a cat sleeping", "birds")]


@pytest.fixture(scope="module")
def folder_and_logits(tmp_path_factory):
    """The folder of a classifier of texts and of pairs, and its logits for each."""
    folder = tmp_path_factory.mktemp("folder")
    tokenizer = DietBertTokenizer(VOCABULARY, special_tokens_in_strings=True)
    preprocessor = DietBertTextClassifierPreprocessor(tokenizer, 13)
    classifier = DietBertTextClassifier(tiny_backbone(num_layers=1), 3, preprocessor)
    randomize_weights(classifier).export_to_hugging_face(folder, onnx=True)
    logits = dict(zip(TEXTS, classifier.predict(TEXTS, verbose=0), strict=True))
    of_pairs = classifier.predict(tuple(map(list, zip(*PAIRS, strict=True))), verbose=0)
    return folder, {**logits, **dict(zip(PAIRS, of_pairs, strict=True))}


def request(port, method, path="/", body=None, headers=()):
    connection = http.client.HTTPConnection("localhost", port, timeout=120)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@contextlib.contextmanager
def running(folder):
    """The process of a service, and its port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, SCRIPT, folder, str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                try:
                    assert request(port, "GET", "/health") == (200, {})
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield process, port
        finally:
            process.kill()


@pytest.fixture(scope="module")
def service(folder_and_logits):
    """One service for the tests of this file. The last of them ends it."""
    with running(folder_and_logits[0]) as process_and_port:
        yield process_and_port


def memory_of(process):
    """Return the MiB that a process has in memory."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        pytest.skip("only Linux tells the memory of another process")
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 2**10


def test_many_clients_at_a_time(folder_and_logits, service):
    """Each answer is that of its own texts, and memory does not grow."""
    (_, logits), (process, port) = folder_and_logits, service
    kinds = list(logits)

    def send(number):
        texts = [kinds[(number + i) % len(kinds)] for i in range(1 + number % 4)]
        status, found = request(port, "POST", body=json.dumps(texts))
        assert status == 200
        assert_close(np.array(found), np.array([logits[text] for text in texts]), 1e-5)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(send, range(WARM_UP)))
        before = memory_of(process)
        list(pool.map(send, range(REQUESTS)))
    # Four kilobytes of each request that stay would be 4 MiB.
    assert memory_of(process) < before + 4, "the memory of the service grows with each request"


WRONG = {
    "not JSON": ("the fox", 400),
    "no list": ('"the fox"', 400),
    "an empty list": ("[]", 400),
    "an empty text": ('["the fox", ""]', 400),
    "three texts of one": ('[["the fox", "the", "a"]]', 400),
    "a number": ('["the fox", 3]', 400),
    "half a surrogate pair": ('["\\ud800"]', 400),
    "too many texts": (json.dumps(["the"] * 33), 413),
    "a long text": (json.dumps(["the " * 12]), 413),
}


def test_wrong_requests(service):
    _, port = service
    for name, (body, expected) in WRONG.items():
        status, answer = request(port, "POST", body=body)
        assert (status, list(answer)) == (expected, ["error"]), name
        assert "1 to 32 texts, or pairs of texts, of 1 to 13 tokens" in answer["error"], name
    assert request(port, "POST", headers={"Content-Length": "five"})[0] == 400
    for size in (1_000_001, 2_000_000, 50_000_000):
        assert request(port, "POST", body="1" * size)[0] == 413, f"{size} bytes"
    # The answer does not wait for bytes that the client has announced.
    large = {"Content-Length": "1000000000"}
    assert request(port, "POST", body="1" * 1_000_000, headers=large)[0] == 413
    assert request(port, "GET", "/elsewhere")[0] == 404
    # The most texts of the longest kind, and the service still answers.
    assert request(port, "POST", body=json.dumps(["the " * 11] * 32))[0] == 200


def program(name, rank):
    """A program that returns its input, of some rank, with the name of another output."""
    sizes = ["batch", "length", "size"][:rank]
    values = [
        onnx.helper.make_tensor_value_info(each, onnx.TensorProto.INT64, sizes)
        for each in ("input_ids", name)
    ]
    node = onnx.helper.make_node("Identity", ["input_ids"], [name])
    graph = onnx.helper.make_graph([node], "program", values[:1], values[1:])
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def changed(folder, name, model, vocabulary=()):
    """A copy of a folder with another program and other ids of some tokens."""
    copy = shutil.copytree(folder, folder.with_name(name))
    onnx.save(model, copy / "onnx/model.onnx")
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"].update(vocabulary)
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    return copy


def test_an_error_of_the_program(folder_and_logits):
    """It is the answer to the request of an embedder, and the service goes on."""
    folder = folder_and_logits[0]
    model = onnx.load(folder / "onnx/model.onnx")
    model.graph.node.append(onnx.helper.make_node("Identity", ["logits"], ["sentence_embedding"]))
    model.graph.output[0].name = "sentence_embedding"
    # The program has no vector of this token.
    with running(changed(folder, "embedder", model, {"bird": 1000})) as (_, port):
        status, answer = request(port, "POST", body='["a bird"]')
        assert (status, list(answer)) == (500, ["error"])
        assert request(port, "POST", body='["a cat"]')[0] == 200


def test_a_task_without_one_vector_for_each_text(folder_and_logits):
    """The outputs are those of a question answerer and of a token classifier."""
    folders = [
        changed(folder_and_logits[0], f"{name} {rank}", program(name, rank))
        for name, rank in (("start_logits", 2), ("logits", 3))
    ]
    options = {"stderr": subprocess.PIPE, "text": True}
    # A service that started would not end.
    started = [subprocess.Popen([sys.executable, SCRIPT, each, "0"], **options) for each in folders]
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "one vector for each text" in errors


def test_the_end_of_a_service(folder_and_logits, service):
    """Requests that have arrived are answered after SIGTERM, and idle clients do not delay it."""
    (_, logits), (process, port) = folder_and_logits, service
    body = json.dumps(TEXTS[:1]).encode()
    head = b"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    with contextlib.ExitStack() as stack:
        _, started, *waiting = (
            stack.enter_context(socket.create_connection(("localhost", port), timeout=60))
            for _ in range(100)
        )
        started.sendall(head)
        # The service has its thread for the request before it gets the signal.
        assert request(port, "GET", "/health") == (200, {})
        # It accepts no connection before the signal.
        process.send_signal(signal.SIGSTOP)
        waiting += (
            stack.enter_context(socket.create_connection(("localhost", port), timeout=60))
            for _ in range(100)
        )
        for client in waiting:
            client.sendall(head + body)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        started.sendall(body)
        for client in (started, *waiting):
            answer = b"".join(iter(lambda client=client: client.recv(4096), b""))
            assert answer, "a request that has arrived is lost"
            found = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert_close(np.array(found), logits[TEXTS[0]][None], 1e-5)
        assert process.wait(60) == 0, "a connection without a request keeps the process alive"
